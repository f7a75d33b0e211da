"""What follows the log while a store is open: queues, index, checkpoint."""
