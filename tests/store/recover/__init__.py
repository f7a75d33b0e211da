"""Tests of store/recover."""
