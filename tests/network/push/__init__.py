"""The push consumer."""
