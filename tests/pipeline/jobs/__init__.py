"""Tests of pipeline/jobs."""
