"""Tests of rmqctl/output."""
