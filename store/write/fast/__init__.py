"""Puts of ordinary messages without repeated lookups."""
