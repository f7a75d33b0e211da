"""Tests of store/dump."""
