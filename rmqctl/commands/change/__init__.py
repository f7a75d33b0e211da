"""Verbs that change a store."""
