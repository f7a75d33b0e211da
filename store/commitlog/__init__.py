"""The commitlog: the walk over its frames, appending to it, flushing it."""
