"""How findings, changes and outcomes are told."""
