"""Offsets of consumer groups as config/consumerOffset.json keeps them: shown, looked through, and changed."""
