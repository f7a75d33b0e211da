"""Files: paths, locks, reading, and `io`, the one module that writes. Remote stores."""
