"""Verbs that speak to brokers, or as one: one verb, one module."""
