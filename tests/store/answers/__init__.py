"""Tests of store/answers."""
