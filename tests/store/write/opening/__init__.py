"""Tests of store/write/opening."""
