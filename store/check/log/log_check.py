"""Judges what the walk over the log yields: damage inside it, its torn tail, messages that came back from the dead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rmqctl.formats.errors import RmqctlError, UnreadableError
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.cross import CrossCheck, LogSeen
from rmqctl.store.check.log.batch_look import Look
from rmqctl.store.check.log.damage_findings import DamageFindings
from rmqctl.store.check.log.log_walk import Walked
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, walk
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.frames import message_at
from rmqctl.store.survey.log_runs import Run
from rmqctl.store.survey.tail import Tail

# found by the names and sizes of the files already
_OF_FILES = (Reason.GAP, Reason.SHORT_FILE)
_JUMPS_A_PIECE = 8
_SETTLING_S = 0.1


class LogCheck:
    """Takes the pieces of the walk in order. `seen` is filled on the way; `cross` gets every run of the valid log.

    `tail`: how the log ends as far as its last bytes tell; damage before that lies inside the log. `unreadable` is told
    of a file that a cross check cannot read; that check is left out of `cross` from then on.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        seen: LogSeen,
        cross: Sequence[CrossCheck],
        findings: DamageFindings,
        tail: Tail,
        unreadable: Callable[[UnreadableError], Finding],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.look = Look(is_full=True)
        self.last_message_offset = -1
        self._log = log
        self._seen = seen
        self.cross = list(cross)
        self._unreadable = unreadable
        self._findings = findings
        self._tail = tail
        self._pause = pause
        self._pending: list[Damage | Empty] = []
        self._stale: list[Run] = []
        self._slots: dict[tuple[str, int], int] = {}
        self._last_timestamp = 0

    def take(self, walked: Walked) -> Iterator[Finding]:
        """The next piece."""
        jumps = walked.look.jumps.first[:_JUMPS_A_PIECE]
        if walked.look.messages and walked.look.first_store_timestamp < self.look.last_store_timestamp:
            jumps = [walked.look.first_physical_offset, *jumps]
        for record in walked.records:
            if isinstance(record, Run):
                yield from self._run(record, jumps)
            elif isinstance(record, Blank):
                self._advance(record.end)
            elif isinstance(record, Damage) and record.reason in _OF_FILES:
                self._seen.damaged.append(record)
            else:
                self._pending.append(record)
        self.look.join(walked.look)

    def _run(self, run: Run, jumps: list[int]) -> Iterator[Finding]:
        if self._pending and self._is_stale(run):
            self._stale.append(run)
            return
        yield from self._settle_inside()
        for physical_offset in jumps:
            if run.physical_offset <= physical_offset < run.end:
                found = self._came_back(run, physical_offset)
                if found is not None:
                    yield found
                    break
        for queue in run.queues:
            key = queue.topic, queue.queue_id
            self._slots[key] = max(self._slots.get(key, -1), int(queue.slots.max()))
        self._advance(run.end)
        self.last_message_offset = run.last_message_offset
        self._last_timestamp = run.last_store_timestamp
        for check in list(self.cross):
            try:
                check.add(run)
            except UnreadableError as error:
                self.cross.remove(check)
                yield self._unreadable(error)

    def _advance(self, end: int) -> None:
        """The valid log reaches up to here, unless something is in the way."""
        if not self._pending and not self._stale:
            self._seen.log_end = max(self._seen.log_end, end)

    def _settle_inside(self) -> Iterator[Finding]:
        """Good messages follow what is pending: it lies inside the log."""
        pending, self._pending = self._pending, []
        for number, span in enumerate(pending):
            self._note(span)
            # zeros behind damage, up to the end of the file, belong to it
            if number == 0 or isinstance(span, Damage) or pending[number - 1].end != span.physical_offset:
                yield self._findings.inside(span)
        stale, self._stale = self._stale, []
        for run in stale:
            self._note(Damage(run.physical_offset, run.end, Reason.MAGIC, "messages of an older log", ""))
            yield self._findings.stale(run.physical_offset, run.end, run.messages)

    def _note(self, span: Damage | Empty) -> None:
        if isinstance(span, Empty):
            span = Damage(span.physical_offset, span.end, Reason.MAGIC, "zeros inside the log", "")
        self._seen.damaged.append(span)

    def end_range(self) -> Iterator[Finding]:
        """A stretch of the log was walked to its end."""
        if not self._stale and self._pending and self._pending[0].physical_offset < self._tail.end:
            yield from self._settle_inside()
            return
        pending, self._pending = self._pending, []
        stale, self._stale = self._stale, []
        if pending and not self._is_still_there(pending[0]):
            pending = []
        spans = [span for span in pending if isinstance(span, Damage)]
        if spans:
            # one tail, however many frames of it are damaged
            whole = spans[0]._replace(end=spans[-1].end)
            self._note(whole)
            yield self._findings.tail(whole, len(spans))
        if stale:
            first, last = stale[0], stale[-1]
            yield self._findings.stale(first.physical_offset, last.end, sum(run.messages for run in stale))

    def _is_still_there(self, span: Damage | Empty) -> bool:
        """False where a writer that nobody could see was just writing this frame."""
        if isinstance(span, Empty):
            return True
        self._pause(_SETTLING_S)
        for record in walk(self._log, span.physical_offset):
            if isinstance(record, Damage) and record.physical_offset == span.physical_offset:
                return True
            break
        self._seen.is_live = True
        return False

    def _is_stale(self, run: Run) -> bool:
        """Whether messages behind damage are left over from before a truncation, which clears nothing.

        They lie in the file where the log ends, and they and all that follows were stored before what precedes them:
        new messages were written over the first of them later. Queue offsets tell nothing, new ones may have taken any.
        """
        file = self._log.find(self._tail.begin)
        if file is None or run.physical_offset < file.start_offset:
            return False
        if self._tail.last_store_timestamp >= self._last_timestamp:
            return False
        first = self._message(run.physical_offset)
        return first is not None and first.store_timestamp < self._last_timestamp

    def _came_back(self, run: Run, physical_offset: int) -> Finding | None:
        """A finding if the message there, older than the one before it, takes a queue offset given already."""
        message = self._message(physical_offset)
        if message is None or not has_queue_slot(message.sys_flag):
            return None
        known = self._slots.get((message.topic, message.queue_id), -1)
        for queue in run.queues:
            if (queue.topic, queue.queue_id) == (message.topic, message.queue_id):
                before = queue.slots[queue.units["physical_offset"].astype(np.int64) < physical_offset]
                known = max(known, int(before.max()) if len(before) else -1)
        if message.queue_offset > known:
            return None
        file = self._log.find(physical_offset)
        return Finding(
            "RMQ-LOG-015",
            f"older than the message before it, and queue offset {message.queue_offset} was given already",
            None if file is None else file.path,
            physical_offset,
            message.topic,
            message.queue_id,
            known + 1,
            message.queue_offset,
            data_lost=False,
        )

    def _message(self, physical_offset: int) -> StoredMessage | None:
        try:
            return message_at(self._log, physical_offset)
        except RmqctlError:
            return None
