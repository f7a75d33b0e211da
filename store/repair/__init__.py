"""Changes of a damaged store beyond its recovery: ending the log at will, bridging damage, mending findings."""
