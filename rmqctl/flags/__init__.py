"""The flags of the command line, what their values may be, and what a shell completes them to."""
