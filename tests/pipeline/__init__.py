"""Tests of pipeline/: splits, engines, jobs."""
