"""What recovery is asked to do, and what it says it did."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import RefusedError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.compare.entries import EntriesEnd
from rmqctl.store.journal.plan import Plan
from rmqctl.store.log.implied import Run
from rmqctl.store.log.survey import LogSurvey
from rmqctl.store.log.walk import Damage


@dataclass(slots=True)
class RecoverReport:
    """What recovery did, or with `dry_run` would do. Offsets physical; `journal` is the folder that keeps what went.

    `deleted_topic_messages`: messages of topics that were deleted and created again, which are in no queue any more.
    `damaged` lists spans before `start_offset` that are left as they are, `bridged` those that were replaced by filler
    messages. `left`: the paths of what stays and stops a 4.x broker. `operations` is the plan.
    """

    _repr_html_ = as_html

    was_clean: bool
    start_file: str | None
    start_offset: int
    end_offset: int
    messages: int
    truncated_bytes: int = 0
    messages_cut: int = 0
    queues_changed: int = 0
    units_added: int = 0
    units_removed: int = 0
    slot_conflicts: int = 0
    deleted_topic_messages: int = 0
    unplaceable_messages: int = 0
    index_files_rebuilt: int = 0
    journal: str | None = None
    dry_run: bool = False
    damaged: list[dict[str, Any]] = field(default_factory=list)
    bridged: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Bridges:
    """Damaged spans that are replaced. `runs`: the messages that will stand there, in order; `operations` write them.

    `paths`: files that get their full length by that. `lengthened`: new sizes of good messages, by physical offset.
    """

    runs: list[Run] = field(default_factory=list)
    operations: Plan = field(default_factory=Plan)
    paths: set[Path] = field(default_factory=set)
    lengthened: dict[int, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def applied(self, run: Run) -> Run:
        """`run` with the sizes that its messages will have."""
        for offset, size in self.lengthened.items():
            if run.physical_offset <= offset < run.end:
                for queue in run.queues:
                    queue.units["size"][queue.units["physical_offset"] == offset] = size
                run.special = [
                    (row, message._replace(total_size=size) if message.physical_offset == offset else message)
                    for row, message in run.special
                ]
        return run


class Part(enum.Enum):
    """What a recovery can put right, each by itself. LOG: its end and its files, and that no `abort` is left."""

    LOG = "log"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"


ALL_PARTS = frozenset(Part)


class Goal(NamedTuple):
    """What a recovery is to do about damage with good messages behind it (refuse, unless one of these says else).

    `cut`: end the log there; `full`: anywhere in the log; `at`: end the log at this offset, with any damage before it;
    `bridges`: replace it; `leave`: leave it. `new_checkpoint`: write the checkpoint even where nothing else changes.
    `messages_cut`: good messages behind `at`. `parts`: what it plans; what it leaves out stays as it is. `entries`: of
    a DLedger log, which ends at `at` then.
    """

    cut: bool = False
    full: bool = False
    at: int | None = None
    bridges: Bridges | None = None
    leave: bool = False
    new_checkpoint: bool = False
    messages_cut: int = 0
    parts: frozenset[Part] = ALL_PARTS
    entries: EntriesEnd | None = None

    @property
    def is_tolerant(self) -> bool:
        """Whether damage inside the log is nothing to stop at."""
        return self.at is not None or self.bridges is not None or self.leave

    @property
    def is_cut(self) -> bool:
        """Whether the user chose where the log ends."""
        return self.at is not None and self.entries is None


def damage_row(span: Damage) -> dict[str, Any]:
    """A damaged span for a report."""
    return {
        "file": span.file,
        "physical_offset": span.physical_offset,
        "end_offset": span.end,
        "reason": str(span.reason),
        "message": span.detail,
    }


def inside_damage(survey: LogSurvey, kept: Path, *, is_full: bool) -> RefusedError:
    """What to say where good messages follow damage; `kept`: where what is cut off would be kept. `is_full`: damage
    counts wherever it is."""
    stop = survey.stop
    if isinstance(stop, Damage):
        what, file = f"damage ({stop.reason}: {stop.detail})", stop.file
    else:
        what, file = "zeros where a message should be", None
    messages, size = counted(survey.behind_messages, "good message"), counted(survey.behind_bytes, "byte")
    return RefusedError(
        f"{what}, followed by {messages} ({size})",
        file=file,
        physical_offset=stop.physical_offset if stop is not None else survey.end_offset,
        hint="`rmqctl recover --bridge` replaces the damage and keeps everything after it; "
        f"`{'--full --cut' if is_full else '--cut'}` ends the log here, as a broker would. Removed data "
        f"is kept in {kept}; "
        "until then `cat` and `query` read every message",
    )
