"""Extraction of valid messages from any bytes into a new store."""
