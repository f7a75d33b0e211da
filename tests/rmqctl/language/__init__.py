"""Tests of rmqctl/language."""
