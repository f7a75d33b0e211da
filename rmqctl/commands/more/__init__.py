"""Verbs about rmqctl itself."""
