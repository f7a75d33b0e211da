"""Tests of store/write/dispatch."""
