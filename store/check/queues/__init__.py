"""The consume queues held against the log, both ways."""
