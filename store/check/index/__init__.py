"""The index files held against the log, both ways."""
