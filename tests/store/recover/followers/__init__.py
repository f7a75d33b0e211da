"""Tests of what follows the end of the log and is cut with it."""
