"""Tests of store/info."""
