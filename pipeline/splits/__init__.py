"""Byte ranges of a log, where a walk may begin in one, and the loops over them."""
