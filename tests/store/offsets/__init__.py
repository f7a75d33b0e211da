"""Tests of store/offsets."""
