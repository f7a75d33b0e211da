"""Consume queues: units, next offsets, offsets by time."""
