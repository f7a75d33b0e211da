"""The commitlog: walk, damage, end of log, appends to the last file."""
