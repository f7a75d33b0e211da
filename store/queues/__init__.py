"""Consume queues: units, the table of next offsets, offsets by time."""
