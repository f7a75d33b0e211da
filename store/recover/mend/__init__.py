"""Queues and index held against what the log implies, and the changes that make them agree."""
