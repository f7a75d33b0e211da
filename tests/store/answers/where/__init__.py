"""Tests of store/answers/where."""
