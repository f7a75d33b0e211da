"""Tests of pipeline/streams."""
