"""Timer messages: stored state and pending deliveries."""
