"""Tests of stores that lie on servers."""
