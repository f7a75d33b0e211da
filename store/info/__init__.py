"""Numbers about a store: the look of `info` and `ls`."""
