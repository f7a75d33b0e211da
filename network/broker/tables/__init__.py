"""What the broker knows by name: topics, groups, offsets, clients, locks."""
