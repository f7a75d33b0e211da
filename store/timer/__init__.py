"""The timer: messages with a delivery time of their own; what is kept of it, and which of its messages still wait."""
