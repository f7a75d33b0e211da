"""Tests of store/timer."""
