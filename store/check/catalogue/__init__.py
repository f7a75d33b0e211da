"""Kinds of findings by stable code; source of docs/findings.md."""
