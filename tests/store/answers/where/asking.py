"""Asks where a message is, on a golden store that nobody changes or on one that was."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.answers.steps import Stage, Step, Whereabouts
from rmqctl.store.answers.where import WhereQuestion, where
from rmqctl.store.options import Events
from rmqctl.store.read.reader import StoreReader

NOW = 1_800_000_000_000
"""Later than everything in the golden stores."""


class Asked(NamedTuple):
    """The answer, what was said of all of it, and the damage that was told."""

    found: list[Whereabouts]
    said: list[str]
    damage: list[CorruptError]

    @property
    def one(self) -> Whereabouts:
        """The only message."""
        (only,) = self.found
        return only


def ask(reader: StoreReader, *words: object, now: int = NOW, **question: Any) -> Asked:
    """`rmqctl where WORDS` as the engine answers it."""
    said: list[str] = []
    damage: list[CorruptError] = []
    wanted = WhereQuestion([str(word) for word in words], now, **question)
    return Asked(list(where(reader.telling(Events(damage=damage.append, note=said.append)), wanted)), said, damage)


def steps(answer: Whereabouts, stage: Stage, group: str | None = None) -> list[Step]:
    """The evidence of one stage."""
    return [step for step in answer.evidence if step.stage is stage and group in (None, step.group)]
