"""Tests of pipeline/sink."""
