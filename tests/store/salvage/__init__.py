"""Tests of store/salvage."""
