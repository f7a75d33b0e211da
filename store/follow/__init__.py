"""A log that somebody writes to, followed."""
