"""Verbs about consumers and the messages that wait for them: one verb, one module."""
