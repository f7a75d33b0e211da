"""Writing: checks, puts, services of an open store."""
