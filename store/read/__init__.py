"""Reading: queues, keys, offsets, times, messages one after the other, and numbers about a store."""
