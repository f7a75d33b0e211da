"""Frames of Spark written into a store, in batches and streams: all of a write, or nothing of it."""
