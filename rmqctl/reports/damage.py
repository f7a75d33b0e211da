"""Telling what is wrong with what a verb reads, damage or bad items, on stderr, and counting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.formats.errors import CorruptError
    from rmqctl.output.output import Output

# beyond this, damage and bad items are only counted on stderr
_TOLD = 20


class ToldDamage:
    """Tells damage as it is met, and counts it."""

    def __init__(self, output: Output) -> None:
        self.count = 0
        self._output = output

    def __call__(self, error: CorruptError) -> None:
        """One more damaged place."""
        self.count += 1
        if self.count <= _TOLD:
            self._output.talk(f"damage: {error}")
        elif self.count == _TOLD + 1:
            self._output.talk("damage: more of it follows, which is only counted")


def tell_bad_items(output: Output, item: str, errors: dict[int, str], before: int) -> int:
    """Name what is wrong with some items, behind as many `before` them; how many there are then."""
    for count, (number, why) in enumerate(sorted(errors.items()), start=before + 1):
        if count <= _TOLD:
            output.talk(f"{item} {number}: {why}")
        elif count == _TOLD + 1:
            output.talk(f"further bad {item}s are only counted")
    return before + len(errors)
