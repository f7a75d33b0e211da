"""Verbs that look and never change a store: one verb, one module."""
