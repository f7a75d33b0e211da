"""A broker beside the real one: how soon it answers, and how much it takes and gives."""
