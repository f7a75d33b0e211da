"""Verbs in surroundings that no test machine has by itself: file systems, limits, closed descriptors."""
