"""Tests of the walk in columns."""
