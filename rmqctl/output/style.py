"""Colours: what each means, in one place. Only a terminal gets them, and not where NO_COLOR or TERM=dumb say so."""

from __future__ import annotations

GOOD, DOUBTFUL, BAD = "green", "yellow", "bold red"
HEADING = "bold"
OF_SEVERITY = {"error": BAD, "warning": DOUBTFUL, "notice": "cyan"}
"""Severity of a finding -> its style."""
