"""Verifiable copies of a store."""
