"""How the answer to a question of consumers is told: its rows as data, damage in its way and what it lacks as talk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rmqctl import exit_codes
from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError
from rmqctl.reports.damage import ToldDamage

if TYPE_CHECKING:
    from rmqctl.output.output import Output


class AnswerRow(Protocol):
    """A row of an answer: a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


def tell_answer(
    output: Output,
    columns: Sequence[str],
    ask: Callable[[Callable[[str], None], Callable[[CorruptError | UncertainError], None]], Iterable[AnswerRow]],
    otherwise: NotFoundError,
    droppable: Sequence[str] = (),
) -> int:
    """Print what `ask(tell, on_damage)` gives, and return the exit code; `otherwise` is raised for an answer without
    rows, unless damage is what hides them."""
    damage = ToldDamage(output)
    count = output.rows(columns, (row._asdict() for row in ask(output.talk, damage)), droppable=droppable)
    if damage.count or damage.is_uncertain:
        return exit_codes.DAMAGE_OR_NOTHING
    if not count:
        raise otherwise
    return exit_codes.OK
