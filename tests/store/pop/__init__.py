"""Tests of store/pop."""
