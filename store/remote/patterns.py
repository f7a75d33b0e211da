"""Which paths and addresses are patterns, and what to do about one where there can only be one store."""

from __future__ import annotations

import os

ONE_STORE = "patterns name the stores of `rmqctl sql` and of Spark; name one store here"
"""What to do about a pattern where there can only be one store."""

_WILD = frozenset("*?[{")


def is_wild(path: str | os.PathLike[str]) -> bool:
    """Whether it has *, ?, [ or {, as a pattern that stands for all that match it."""
    return not _WILD.isdisjoint(os.fspath(path))
