"""The generated part of docs/: command reference, findings, error codes."""
