"""Measures rmqctl against the real RocketMQ, and both against what the machine can do: `make bench`."""
