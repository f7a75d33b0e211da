"""Verbs about consumers."""
