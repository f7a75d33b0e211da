"""The gRPC service: calls without a client around them, and the official Python client."""
