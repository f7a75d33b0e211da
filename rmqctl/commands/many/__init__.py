"""Verbs for many messages and many machines: one verb, one module."""
