"""Tests of store/journal."""
