"""Tests of rmqctl/sql."""
