"""What may be wrong, by stable code; docs/findings.md is made of it."""
