"""How a number of things is written in a text: `1 unit points`, `2 units point`."""

from __future__ import annotations


def counted(number: int, one: str, several: str | None = None) -> str:
    """The number with `one` or `several` behind it; `several` is `one` with an s if it is not given."""
    return f"{number} {one if number == 1 else several or one + 's'}"
