"""The commitlog's walk."""
