"""What a check covered and counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class CheckSummary:
    """What was looked at. Offsets physical, times in ms, sizes in bytes.

    `complete`: everything that was asked for was looked at; else `stopped_by` says why not ("max_duration",
    "fail_fast", "unreadable") and `next_offset` where the next check goes on. `ranges`: what of the log was walked.
    `lost`: what is gone for good ("messages", "consumer offsets", …), [] where nothing is known to be;
    `perhaps_lost`: of some damage it is not known; `perhaps` names what it would be.
    `uncovered_messages`: without a checksum over head, topic and properties; counted at the full level only.
    `bodies_not_unpacked`: compressed bodies of which no more than the checksum was checked; at the full level none.
    """

    level: str
    path: str
    complete: bool = True
    stopped_by: str | None = None
    next_offset: int | None = None
    files: int = 0
    log_begin: int = 0
    log_end: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    messages: int = 0
    bytes: int = 0
    uncovered_messages: int | None = None
    bodies_not_unpacked: int = 0
    queues_checked: bool = False
    index_checked: bool = False
    live: bool = False
    subset: str | None = None
    errors: int = 0
    warnings: int = 0
    notices: int = 0
    data_lost: bool = False
    lost: list[str] = field(default_factory=list)
    perhaps_lost: bool = False
    perhaps: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    duration_ms: int = 0

    @property
    def alarms(self) -> int:
        """Findings that count as damage."""
        return self.errors + self.warnings

    def row(self) -> dict[str, Any]:
        """As one object with stable names."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["ranges"] = [{"begin": begin, "end": end} for begin, end in self.ranges]
        return values
