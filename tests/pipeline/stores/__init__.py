"""Tests of pipeline/stores."""
