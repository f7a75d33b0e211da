"""Verbs about consumer groups and pending messages."""
