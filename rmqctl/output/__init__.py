"""Sanitised output to terminal or pipe: tables, cells, times, progress."""
