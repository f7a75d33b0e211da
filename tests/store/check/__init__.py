"""Tests of what looks for damage."""
