"""Which stores a query is about."""
