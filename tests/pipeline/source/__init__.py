"""Tests of pipeline/source."""
