"""Stores that somebody made to do harm: no crash, no hang, nothing outside the store, nothing raw on a terminal."""
