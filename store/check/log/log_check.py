"""What the walk over the log yields, as findings: damage in it, its torn tail, messages that came back to life."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import Reason
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.cross import CrossCheck, LogSeen
from rmqctl.store.check.log.batch_look import Look
from rmqctl.store.check.log.damage_findings import DamageFindings
from rmqctl.store.check.log.log_walk import Walked
from rmqctl.store.check.log.old_messages import OldMessages
from rmqctl.store.commitlog.walk import Damage
from rmqctl.store.config.epoch_file import Epoch
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.log_runs import Run
from rmqctl.store.survey.settling import Settled, Settling
from rmqctl.store.survey.tail import Tail

# found by the names and sizes of the files already
_OF_FILES = (Reason.GAP, Reason.SHORT_FILE)
_JUMPS_A_PIECE = 8


class LogCheck:
    """Takes the pieces of the walk in order. `seen` is filled on the way; `cross` gets every run of the valid log.

    `tail`: how the log ends as far as its last bytes tell; damage before that lies inside the log. `unreadable` is told
    of a file that a cross check cannot read; that check is left out of `cross` from then on. `epochs`: of the epoch
    file.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        seen: LogSeen,
        cross: Sequence[CrossCheck],
        findings: DamageFindings,
        tail: Tail,
        unreadable: Callable[[UnreadableError], Finding],
        epochs: Sequence[Epoch] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.look = Look(is_full=True)
        self.last_message_offset = -1
        self._seen = seen
        self.cross = list(cross)
        self._unreadable = unreadable
        self._findings = findings
        self._settling = Settling(log, tail, pause)
        self._old_messages = OldMessages(log, tail, epochs)

    def take(self, walked: Walked) -> Iterator[Finding]:
        """The next piece."""
        jumps = walked.look.jumps.first[:_JUMPS_A_PIECE]
        if walked.look.messages and walked.look.first_store_timestamp < self.look.last_store_timestamp:
            jumps = [walked.look.first_physical_offset, *jumps]
        for record in walked.records:
            if isinstance(record, Run):
                yield from self._run(record, jumps)
            elif isinstance(record, Damage) and record.reason in _OF_FILES:
                self._seen.damaged.append(record)
            else:
                self._settling.pass_other(record)
                self._advance()
        self.look.join(walked.look)

    def _run(self, run: Run, jumps: list[int]) -> Iterator[Finding]:
        settled = self._settling.pass_run(run)
        if settled is None:
            return
        yield from self._told(settled)
        yield from self._old_messages.pass_run(run, jumps)
        self._advance()
        self.last_message_offset = run.last_message_offset
        for check in list(self.cross):
            try:
                check.add(run)
            except UnreadableError as error:
                self.cross.remove(check)
                yield self._unreadable(error)

    def _advance(self) -> None:
        self._seen.log_end = max(self._seen.log_end, self._settling.valid_end)

    def end_range(self) -> Iterator[Finding]:
        """A stretch of the log was walked to its end."""
        settled = self._settling.finish()
        self._seen.is_live |= self._settling.is_live
        yield from self._told(settled)

    def _told(self, settled: Settled) -> Iterator[Finding]:
        self._seen.damaged += settled.damaged
        yield from map(self._findings.inside, settled.inside)
        if settled.torn is not None:
            yield self._findings.tail(settled.torn, settled.torn_frames)
        for stale in settled.stale:
            yield self._findings.stale(*stale, log_end=self._settling.valid_end)
