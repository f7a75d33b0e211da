"""The key index: its files and the service that keeps them."""
