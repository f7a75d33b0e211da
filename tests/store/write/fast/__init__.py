"""Tests of store/write/fast."""
