"""POP consumption: its records, and what is in flight."""
