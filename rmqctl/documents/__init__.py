"""Generated documents: command reference, findings, error codes, manual pages."""
