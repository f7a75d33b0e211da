"""Byte layouts: construct schemas and code derived from them. No files, no clock."""
