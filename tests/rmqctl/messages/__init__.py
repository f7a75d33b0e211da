"""Tests of rmqctl/messages."""
