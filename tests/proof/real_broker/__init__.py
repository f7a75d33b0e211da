"""Stores that ours and the real brokers use in turns and that are damaged: what both have to see in them alike."""
