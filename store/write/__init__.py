"""Writing: checks, puts, the services that run while a store is open, and opening it."""
