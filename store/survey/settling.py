"""What stretches of the log without a good record are, told by what a walk finds behind them: damage inside the log,
its torn tail, or the room behind its end, where messages of an older log may stand."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Reason
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, walk
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.frames import message_at
from rmqctl.store.survey.log_runs import Run
from rmqctl.store.survey.log_survey import as_damage
from rmqctl.store.survey.refused import as_brokers_read
from rmqctl.store.survey.tail import Tail

_SETTLING_S = 0.1


class Stale(NamedTuple):
    """Messages from before a truncation in [begin, end) of the log."""

    begin: int
    end: int
    messages: int


@dataclass(slots=True)
class Settled:
    """What stretches turned out to be. `damaged`: all that held no good message of the log, the torn tail with it.

    `inside`: those with good messages behind them, zeros that end damage left out. `torn`: the damaged end of the log
    as one, in which `torn_frames` seem to begin. `stale`: messages of an older log.
    """

    damaged: list[Damage]
    inside: list[Damage | Empty]
    stale: list[Stale]
    torn: Damage | None = None
    torn_frames: int = 0


def doubtful_from(log: MappedFileQueue, tail: Tail) -> int:
    """Physical offset from which on messages behind damage may be of an older log: where the file begins in which the
    log ends."""
    file = log.find(tail.begin)
    return sys.maxsize if file is None else file.start_offset


class Settling:
    """Takes what a walk yields, in its order. `tail`: how the log ends as far as its last bytes tell; damage before
    that lies inside the log.

    `valid_end`: behind the last record that belongs to the log. `is_live`: a writer was seen at work.
    """

    def __init__(self, log: MappedFileQueue, tail: Tail, pause: Callable[[float], None] = time.sleep) -> None:
        self.valid_end = 0
        self.is_live = False
        self._log = log
        self._tail = tail
        self._doubtful_from = doubtful_from(log, tail)
        self._pause = pause
        self._pending: list[Damage | Empty] = []
        self._stale: list[Run] = []
        self._last_timestamp = 0

    def pass_other(self, record: Blank | Empty | Damage) -> None:
        """The walk came to a record that is no message."""
        if isinstance(record, Blank):
            self._advance(record.end)
        else:
            self._pending.append(record)

    def pass_run(self, run: Run) -> Settled | None:
        """The walk came to good messages: what this says of the stretches before them; None where they seem to be of an
        older log."""
        if self._pending and self._is_stale(run):
            self._stale.append(run)
            return None
        settled = self._inside()
        self._advance(run.end)
        self._last_timestamp = run.last_store_timestamp
        return settled

    def finish(self) -> Settled:
        """The walk is over, or goes on somewhere else."""
        if not self._stale and self._pending and self._pending[0].physical_offset < self._tail.end:
            return self._inside()
        pending, self._pending = self._pending, []
        stale, self._stale = self._stale, []
        if pending and not self._is_still_there(pending[0]):
            pending = []
        spans = [span for span in pending if isinstance(span, Damage)]
        # one tail, however many frames of it are damaged
        torn = spans[0]._replace(end=spans[-1].end) if spans else None
        older = [Stale(stale[0].physical_offset, stale[-1].end, sum(run.messages for run in stale))] if stale else []
        return Settled([] if torn is None else [torn], [], older, torn, len(spans))

    def _advance(self, end: int) -> None:
        """The valid log reaches up to here, unless something is in the way."""
        if not self._pending and not self._stale:
            self.valid_end = max(self.valid_end, end)

    def _inside(self) -> Settled:
        """Good messages follow what is pending: it lies inside the log."""
        pending, self._pending = self._pending, []
        stale, self._stale = self._stale, []
        damaged = [as_damage(span) if isinstance(span, Empty) else span for span in pending]
        inside = [
            span
            for number, span in enumerate(pending)
            # zeros behind damage, up to the end of the file, belong to it
            if number == 0 or isinstance(span, Damage) or pending[number - 1].end != span.physical_offset
        ]
        for run in stale:
            damaged.append(Damage(run.physical_offset, run.end, Reason.MAGIC, "messages of an older log", ""))
        return Settled(damaged, inside, [Stale(run.physical_offset, run.end, run.messages) for run in stale])

    def _is_still_there(self, span: Damage | Empty) -> bool:
        """False where a writer that nobody could see was just writing this frame."""
        if isinstance(span, Empty):
            return True
        self._pause(_SETTLING_S)
        for record in as_brokers_read(walk(self._log, span.physical_offset), self._log):
            if isinstance(record, Damage) and record.physical_offset == span.physical_offset:
                return True
            break
        self.is_live = True
        return False

    def _is_stale(self, run: Run) -> bool:
        """Whether messages behind damage are left over from before a truncation, which clears nothing.

        They lie in the file where the log ends, and they and all that follows were stored before what precedes them:
        new messages were written over the first of them later. Queue offsets tell nothing, new ones may have taken any.
        """
        if run.physical_offset < self._doubtful_from:
            return False
        if not self._tail.is_left_over(self._last_timestamp):
            return False
        try:
            return message_at(self._log, run.physical_offset).store_timestamp < self._last_timestamp
        except RmqctlError:
            return False
