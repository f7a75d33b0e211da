"""POP at the broker: messages handed out for a time, acknowledged or revived."""
