"""Tests of store/predict."""
