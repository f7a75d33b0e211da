"""What a real broker does otherwise than ours, and why: the only differences that the proof lets pass."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Difference(NamedTuple):
    """Texts that `told` matches are explained by `why`, which is said at length in `page`."""

    name: str
    told: re.Pattern[str]
    why: str
    page: str


DIFFERENCES: tuple[Difference, ...] = ()


def unexplained(told: Iterable[str]) -> list[str]:
    """What no row of the table explains."""
    return [text for text in told if not any(row.told.search(text) for row in DIFFERENCES)]
