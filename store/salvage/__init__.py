"""`salvage`: the good messages of any bytes into a new store."""
