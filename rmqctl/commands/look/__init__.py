"""Verbs that read a store and never change it."""
