"""The prompt and the answers of `rmqctl sql`."""
