"""Verbs about rmqctl itself: one verb, one module."""
