"""Consumer offsets in config/consumerOffset.json: show, check, change."""
