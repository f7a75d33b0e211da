"""`diff`: two stores held against each other, message by message."""
