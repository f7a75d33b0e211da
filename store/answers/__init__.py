"""Consumer questions: where a message is, groups, delays, half messages, dead letters."""
