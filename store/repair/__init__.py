"""Changes beyond recovery: truncate, bridge, repair of findings."""
