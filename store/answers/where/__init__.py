"""Where a message is, and why a group has it or not: `rmqctl where`."""
