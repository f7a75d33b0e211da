"""Stores written by the real RocketMQ, whole or as deltas, and the tool that makes them small. See README.md."""
