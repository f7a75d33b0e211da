"""Tests of store/survey."""
