"""Mending queues and index."""
