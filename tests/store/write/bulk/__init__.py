"""Tests of store/write/bulk."""
