"""Removal of expired files, oldest first, then the files that depend on them."""
