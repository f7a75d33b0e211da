"""Compiled code: build, cache, self test, shared helpers."""
