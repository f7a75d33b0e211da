"""Files, plans, journal and lock."""
