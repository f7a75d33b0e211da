"""Methods of MessageStore, grouped by subject."""
