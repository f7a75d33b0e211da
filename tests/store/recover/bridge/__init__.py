"""Tests of store/recover/bridge."""
