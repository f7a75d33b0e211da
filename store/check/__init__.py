"""Damage detection: checkers for each kind of file, and cross checks."""
