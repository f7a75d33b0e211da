"""Tests of formats/: what the bytes mean."""
