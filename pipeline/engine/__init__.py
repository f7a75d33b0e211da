"""The same idempotent task over many items, in processes or on Spark; what tasks hand on to tasks."""
