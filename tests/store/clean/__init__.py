"""Tests of store/clean."""
