"""Tests of store/outputs."""
