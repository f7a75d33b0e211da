"""Verbs that change a store: one verb, one module."""
