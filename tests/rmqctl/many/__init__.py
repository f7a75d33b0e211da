"""Verbs for many messages."""
