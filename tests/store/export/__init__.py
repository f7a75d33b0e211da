"""Tests of the writers of exports."""
