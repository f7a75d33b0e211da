"""How the answer to a question of consumers is told: its rows as data, damage in its way and what it lacks as talk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rmqctl import exit_codes
from rmqctl.formats.errors import CorruptError, HiddenByDamageError, NotFoundError
from rmqctl.formats.wording import counted
from rmqctl.reports.damage import ToldDamage

if TYPE_CHECKING:
    from rmqctl.output.output import Output


class AnswerRow(Protocol):
    """A row of an answer: a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


def tell_answer(
    output: Output,
    columns: Sequence[str],
    ask: Callable[[Callable[[str], None], Callable[[CorruptError], None]], Iterable[AnswerRow | dict[str, Any]]],
    otherwise: NotFoundError,
    droppable: Sequence[str] = (),
) -> int:
    """Print what `ask(tell, on_damage)` gives, and return the exit code.

    Raises: `otherwise` for an answer without rows; HiddenByDamageError if damage may be what hides them.
    """
    damage = ToldDamage(output)
    rows = (row if isinstance(row, dict) else row._asdict() for row in ask(output.talk, damage))
    count = output.rows(columns, rows, droppable=droppable)
    if not count and damage.count:
        raise hidden_by_damage(damage.count, otherwise)
    if not count and not damage.is_uncertain:
        raise otherwise
    return exit_codes.DAMAGE_OR_NOTHING if damage.count or damage.is_uncertain else exit_codes.OK


def hidden_by_damage(places: int, otherwise: NotFoundError) -> HiddenByDamageError:
    """Return the error for a lookup without a result in a store with damaged `places`."""
    found = counted(places, "damaged place")
    return HiddenByDamageError(
        f"not found, but {found} may hide it: {otherwise.message}",
        hint="`rmqctl check` lists the damage" if otherwise.hint is None else otherwise.hint,
    )
