"""Tests of network/ha/."""
