"""Verbs for many messages and many machines."""
