"""Shared options, their value types and shell completion."""
