"""The frame of every change: plan, journal, apply, verify, undo, resume."""
