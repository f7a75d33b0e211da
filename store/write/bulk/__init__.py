"""Puts of many messages as rows and columns."""
