"""`stats`: what a store is made of, in one pass."""
