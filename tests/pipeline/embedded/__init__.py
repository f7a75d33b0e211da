"""Tests of pipeline/embedded."""
