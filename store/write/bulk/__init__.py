"""Many messages at once, as rows and columns."""
