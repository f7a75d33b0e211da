"""Tests of pipeline/engine."""
