"""Remoting protocol: frames and commands as bytes, and the server that speaks it."""
