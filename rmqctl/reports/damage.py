"""Report damage, unread parts of the store and bad items on stderr, and count them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.formats.errors import CorruptError
    from rmqctl.output.output import Output
    from rmqctl.store.read.message_filter import Criteria

# beyond this, damage and bad items are only counted on stderr
_TOLD = 20


class ToldDamage:
    """Report damage as it is met, and what makes an answer uncertain once each, and count both."""

    def __init__(self, output: Output) -> None:
        self.count = 0
        self._output = output
        self._uncertain: set[str] = set()

    @property
    def is_uncertain(self) -> bool:
        """Return whether a part of the store that counts was not read, or lags behind the log."""
        return bool(self._uncertain)

    def __call__(self, error: CorruptError) -> None:
        """Report one damaged place, or one part that was not read."""
        from rmqctl.formats.errors import UncertainError, UnreadPartError

        if isinstance(error, UncertainError):
            self._report_uncertain(error)
            return
        self.count += 1
        if isinstance(error, UnreadPartError):
            self._output.talk(f"not read: {error}{_hint(error)}")
        elif self.count <= _TOLD:
            self._output.talk(f"damage: {error}")
        elif self.count == _TOLD + 1:
            self._output.talk("damage: more of it follows, which is only counted")

    def _report_uncertain(self, error: CorruptError) -> None:
        if str(error) not in self._uncertain:
            self._uncertain.add(str(error))
            self._output.talk(f"not certain: {error}{_hint(error)}")


def report_unsearched(criteria: Criteria, damage: ToldDamage) -> None:
    """Report the messages that may be meant: of bodies that --grep could not search, and of impossible times."""
    for error in criteria.unsure_errors():
        damage(error)


def _hint(error: CorruptError) -> str:
    return f"; {error.hint}" if error.hint else ""


def tell_bad_items(output: Output, item: str, errors: dict[int, str], before: int) -> int:
    """Name what is wrong with some items, behind as many `before` them; how many there are then."""
    for count, (number, why) in enumerate(sorted(errors.items()), start=before + 1):
        if count <= _TOLD:
            output.talk(f"{item} {number}: {why}")
        elif count == _TOLD + 1:
            output.talk(f"further bad {item}s are only counted")
    return before + len(errors)
