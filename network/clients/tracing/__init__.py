"""Message trace: records in RocketMQ's encoding, the dispatcher that sends them, and the hooks that make them."""
