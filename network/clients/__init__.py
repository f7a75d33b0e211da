"""Our own producer and consumer, against any broker: over sockets, or in the same process by the same code."""
