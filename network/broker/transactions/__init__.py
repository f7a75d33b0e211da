"""Transactions: half messages, their end, and the producers that are asked for it."""
