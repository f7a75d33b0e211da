"""Opening a store for writing: what is looked at before the first byte."""
