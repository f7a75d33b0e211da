"""Tests of store/compiled."""
