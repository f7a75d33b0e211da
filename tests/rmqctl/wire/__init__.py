"""Verbs on the wire."""
