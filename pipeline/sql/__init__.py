"""SQL over the views of a store: what is allowed, and errors in plain words."""
