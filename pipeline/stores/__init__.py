"""Which stores a query is about, and what is said where one of them is none."""
