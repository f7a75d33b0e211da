"""Construct declarations of every structure on disk: the one place where a layout is written down."""
