"""Producer and consumer for any broker, over sockets or in one process."""
