"""What a cross check is: it sees every good message of the walk over the log once, and says in the end what differs."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rmqctl.formats.message import Reason
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.commitlog.walk import Damage
from rmqctl.store.survey.log_runs import Run

WHOLE = frozenset({Reason.OVERFLOW, Reason.NUMBER})
"""Why spans count as damage whose messages are whole: only brokers cannot read them."""


class Level(enum.StrEnum):
    """How much is looked at."""

    QUICK = "quick"
    """Names, sizes, heads and tails: seconds on any store. Cross checks get no runs."""
    DEFAULT = "default"
    """Every message with its checksums, queues and index both ways."""
    FULL = "full"
    """Also what lies behind every end, and whether compressed bodies unpack."""


@dataclass(slots=True)
class LogSeen:
    """What of the log was walked: cross checks answer for that and nothing else. Offsets physical.

    `ranges`: [begin, end) of what was walked, ascending and apart; one for the whole log as a rule, several for a
    subset of its files. `log_begin` and `log_end`: of the valid log, known even where only a part was walked; the end
    is where the next message would go. `damaged`: spans inside the ranges that held no good message: what pointed
    there points at damage, not at nothing. `is_live`: somebody writes to the store while it is looked at, so that
    messages from `log_end` on exist by now and the last ones before it may not be dispatched yet.
    """

    log_begin: int = 0
    log_end: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    is_live: bool = False
    level: Level = Level.DEFAULT

    def covers(self, physical_offset: int) -> bool:
        """Whether the walk passed an offset."""
        return any(begin <= physical_offset < end for begin, end in self.ranges)

    @property
    def is_whole(self) -> bool:
        """Whether the whole valid log was walked."""
        return any(begin <= self.log_begin and self.log_end <= end for begin, end in self.ranges)


class CrossCheck(Protocol):
    """`add` every run of the walk in the log's order, then `finish` once. Reads the store's files, changes nothing."""

    def add(self, run: Run) -> None:
        """The log holds these messages."""

    def finish(self, seen: LogSeen) -> Iterator[Finding]:
        """What differs, for the parts of the log that were walked."""
