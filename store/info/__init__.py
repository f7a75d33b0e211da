"""Numbers about a store for `info`, `ls` and `du`."""
