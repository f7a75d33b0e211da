"""Tests of pipeline/spark."""
