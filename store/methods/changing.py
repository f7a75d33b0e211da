"""What changes a store at rest, whole or broken: the mending half of MessageStore."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqctl.formats.errors import CorruptError, RmqctlError, UsageError
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.methods.reading import ReadableStore, now_ms, raised
from rmqctl.store.options import ChangeOptions
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.store.answers.dead_letters import DeadChoice, Redrive
    from rmqctl.store.clean import CleanOptions, CleanReport, Forecast, Unread
    from rmqctl.store.journal.log import Change
    from rmqctl.store.offsets.change import Decision, OffsetsReport, Preference, ResetTo
    from rmqctl.store.offsets.show import KeptOffset, OffsetProblem
    from rmqctl.store.recover.rebuild import RebuildReport
    from rmqctl.store.recover.report import RecoverReport
    from rmqctl.store.repair.entries import EntryChange, EntryReport, PurgeReport
    from rmqctl.store.repair.repair import RepairReport


class ChangeableStore(ReadableStore):
    """The changes of a store that is open for reading. Each takes the broker's own lock by itself while it lasts,
    looks at the store anew under it, keeps what it takes out in DIR.rmqctl, and opens the files again at its end.

    Each raises StoreInUseError where a broker or another writer has the store, RefusedError where the store is open for
    writing here, where an interrupted change waits to be ended, or where a decision is needed; WriteFailedError for an
    I/O error, after which `undo` or `resume` ends the change; UnsupportedError for queues in a RocksDB. After an error
    the store can be looked at as before.

    `change` says how it is made: see ChangeOptions.
    """

    @contextlib.contextmanager
    def _changing(self) -> Iterator[StoreFiles]:
        """The files to change; opened anew at the end, because they changed under the objects that describe them."""
        files = self._files_at_rest()
        try:
            yield files
        except BaseException:
            with contextlib.suppress(RmqctlError):
                self._reopen()
            raise
        self._reopen()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[StoreFiles]:
        """The same, to end a change or take it back: on a server, nobody looks for what a change kept."""
        with self._changing() as files:
            refuse_server(files.root)
            yield files

    def _reopen(self) -> None:
        old, self.files = self.files, StoreFiles(self.files.root, self.files.config)
        old.close()
        self.reader = StoreReader(self.files)

    def recover(
        self,
        *,
        bridge: bool = False,
        cut: bool = False,
        full: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> RecoverReport:
        """End the log where it is valid, and make queues and index complete for it.

        A torn tail is cut. Damage with good messages behind it is refused, unless `bridge` puts filler messages in its
        place, wherever it is, or `cut` ends the log there; `full` lets damage anywhere count, not only where a broker
        would look. UsageError for `bridge` with one of these; otherwise as every change.
        """
        if bridge and (cut or full):
            raise UsageError("`bridge` is for all damage and cuts none", hint="leave out `cut` and `full`, or `bridge`")
        with self._changing() as files:
            if bridge:
                from rmqctl.store.recover.bridge import recover_bridging

                return recover_bridging(files, change)
            from rmqctl.store.recover.recover import recover

            return recover(files, change, cut=cut, full=full)

    def repair(
        self,
        *,
        only: Iterable[str] = (),
        change: ChangeOptions = ChangeOptions(),
    ) -> RepairReport:
        """Check the store and mend what is found; with `only` findings of these codes. What needs a decision is `left`
        in the report. UsageError for a code that is none."""
        from rmqctl.store.repair.repair import repair

        only = tuple(only)
        with self._changing() as files:
            return repair(files, change, only=only)

    def purge(
        self,
        topics: Iterable[str] = (),
        *,
        orphans: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> PurgeReport:
        """Remove `topics`, or all `orphans`: their queues, entries in topics.json and offsets. Messages stay in the
        log. RefusedError for topics of the broker itself; NotFoundError for one that the store does not know."""
        from rmqctl.store.repair.entries import purge_topics

        with self._changing() as files:
            return purge_topics(files, topics, change, orphans=orphans)

    def change_entry(
        self,
        wanted: EntryChange,
        *,
        change: ChangeOptions = ChangeOptions(),
    ) -> EntryReport:
        """Create, change or delete the entry of a topic or group in topics.json or subscriptionGroup.json. Queues,
        messages and offsets stay. RefusedError for names and attributes that RocketMQ refuses, and for an entry that is
        there already; NotFoundError for one that is not."""
        from rmqctl.store.repair.entries import change_entry

        with self._changing() as files:
            return change_entry(files, wanted, change)

    def rebuild(
        self,
        *,
        queues: bool = True,
        index: bool = True,
        topics: Sequence[str] | None = None,
        change: ChangeOptions = ChangeOptions(),
    ) -> RebuildReport:
        """Make consume queues (of `topics`, None: of all) and index anew from the commitlog. The report counts damaged
        spans, which gave no messages. UsageError for `topics` with `index`, which is one for all of them; NotFoundError
        for a topic without messages."""
        from rmqctl.store.recover.rebuild import rebuild

        with self._changing() as files:
            return rebuild(files, change, queues=queues, index=index, topics=topics)

    def truncate(
        self,
        at: int,
        *,
        change: ChangeOptions = ChangeOptions(),
    ) -> RecoverReport:
        """End the log at physical offset `at`, where a record begins or ends; queues, index and checkpoint follow.
        RefusedError, with the nearest offsets, for any other place."""
        from rmqctl.store.recover.recover import truncate

        with self._changing() as files:
            return truncate(files, at, change)

    def undo(self, change_id: str | None = None, change: ChangeOptions = ChangeOptions()) -> Change:
        """Take back the last change, or an interrupted one: every byte, every file, every time.

        `change_id`: the id that the last change must have. NotFoundError if there is none; RefusedError if later ones
        stand or the store was used since; CorruptError if what it kept is damaged.
        """
        from rmqctl.store.journal.undo import undo

        with self._ending() as files:
            return undo(files.layout, change_id, change)

    def resume(self, change: ChangeOptions = ChangeOptions()) -> Change:
        """Finish the change that was interrupted. NotFoundError if there is none; RefusedError if the store was used
        since (`give_up` is the way out); CorruptError."""
        from rmqctl.store.journal.undo import resume

        with self._ending() as files:
            return resume(files.layout, change)

    def give_up(self, change: ChangeOptions = ChangeOptions()) -> Change:
        """End the change that was interrupted where it stands: neither finish it nor take it back. What it took out is
        kept; `recover` makes the store whole then. NotFoundError if there is none."""
        from rmqctl.store.journal.undo import give_up

        with self._ending() as files:
            return give_up(files.layout, change)

    def forget(self, chosen: Iterable[Change]) -> int:
        """Remove for good what these changes kept, and return the bytes freed; no undo from then on. RefusedError for
        one that was interrupted."""
        from rmqctl.store.journal.undo import forget

        return forget(self.files.layout, chosen)

    def clean(
        self,
        options: CleanOptions | None = None,
        *,
        now: int | None = None,
        change: ChangeOptions = ChangeOptions(),
    ) -> CleanReport:
        """Remove expired files for good, by the store's configuration unless `options` are given: see
        rmqctl.store.clean. `now` in ms. RefusedError for a store that was not closed cleanly.

        A file that a reader of this store holds (an iterator that is in the middle of it) is refused: a later call
        removes it once it is released, or when destroyMapedFileIntervalForcibly (120 s) is over since the first one.
        Then the reader gets RemovedError.
        """
        from rmqctl.store.clean import clean

        return clean(self.files, options, now=now, change=change)

    def forecast_clean(self, options: CleanOptions | None = None, *, now: int | None = None) -> Forecast:
        """When each file is going to be removed by a broker, by its age and by how full the disk is; `now` in ms.
        Nothing is changed. RefusedError where it cannot be known what is deleted."""
        from rmqctl.store.clean import forecast_clean, options_from_config

        now = now_ms() if now is None else now
        return forecast_clean(self.files, options or options_from_config(self.files.config), now)

    def unread_before(
        self,
        min_offset: int,
        *,
        tell: Callable[[str], None] = lambda sentence: None,
        on_damage: Callable[[CorruptError], None] = lambda error: None,
    ) -> list[Unread]:
        """What groups have not read and lose if the commitlog begins at physical offset `min_offset`, as a dry run of
        `clean` says it will. `tell` takes what is not known."""
        from rmqctl.store.clean import unread_before

        return unread_before(self.files, min_offset, tell, on_damage)


# Offsets of consumer groups, looked at and changed, and what they gave up: a part of MessageStore.


class OffsetStore(ChangeableStore):
    """What config/consumerOffset.json says of groups. `tell` takes sentences that belong to an answer as a whole;
    damage is told to `on_damage` and passed, without it the first is raised.

    The changes are made as ChangeableStore has it. `confirm` gets the Loss where unread messages are passed over
    (`skipped`). `new_group`: also for a group that nobody knows yet, else NotFoundError. Clients of the group that
    run would commit their own offsets over those that are set here.
    """

    def offsets(
        self,
        group: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        *,
        tell: Callable[[str], None] = lambda sentence: None,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[KeptOffset]:
        """What the file says and its backup, by group, topic and queue; then the delay levels, unless `group` is
        given."""
        from rmqctl.store.offsets.show import kept_offsets

        return kept_offsets(self.reader, group, topic, queue_id, tell, on_damage or raised)

    def lint_offsets(
        self, *, now: int | None = None, tell: Callable[[str], None] = lambda sentence: None
    ) -> Iterator[OffsetProblem]:
        """What is wrong with the files of offsets, or odd about them; `now` in ms."""
        from rmqctl.store.offsets.show import lint_offsets

        return lint_offsets(self.files, now_ms() if now is None else now, tell)

    def set_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        new_group: bool = False,
        anywhere: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:
        """Set a group in one queue. RefusedError outside of the queue, unless `anywhere`."""
        from rmqctl.store.offsets.change import set_offset

        decide = set_offset(group, topic, queue_id, offset, new_group=new_group, anywhere=anywhere)
        return self._change_offsets(decide, change)

    def set_delay_offset(
        self,
        level: int,
        offset: int,
        *,
        anywhere: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:
        """Set a delay level to the next message that the broker delivers. RefusedError outside of its queue and for a
        level that messageDelayLevel lacks, unless `anywhere`."""
        from rmqctl.store.offsets.delay_level import set_delay_offset

        with self._changing() as files:
            return set_delay_offset(files, level, offset, change, anywhere=anywhere)

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        queue_id: int | None = None,
        *,
        new_group: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:
        """Set a group in all queues of a topic, or in one, to a time, an offset or either end. RefusedError for an
        offset outside of a queue and for a store that was not closed cleanly."""
        from rmqctl.store.offsets.change import reset_offsets

        decide = reset_offsets(group, topic, to, queue_id, new_group=new_group)
        return self._change_offsets(decide, change)

    def copy_offsets(
        self,
        source: str,
        target: str,
        topic: str | None = None,
        *,
        new_group: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:
        """Give the group `target` the offsets of `source`, in all its topics but its retry topic, or in one."""
        from rmqctl.store.offsets.change import copy_offsets

        decide = copy_offsets(source, target, topic, new_group=new_group)
        return self._change_offsets(decide, change)

    def merge_offsets(
        self,
        other: str | os.PathLike[str],
        prefer: Preference | None = None,
        group: str | None = None,
        topic: str | None = None,
        *,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:
        """Take what another consumerOffset.json says: what is missing here, and by `prefer` what differs. RefusedError
        where anything differs and `prefer` is not given, but in a dry run."""
        from rmqctl.store.offsets.change import merge_offsets

        decide = merge_offsets(Path(other), prefer, group, topic, only_shown=change.dry_run)
        return self._change_offsets(decide, change)

    def delete_offsets(
        self,
        group: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        *,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:
        """Remove the offsets of a group: all, or those of a topic or queue. Without a group those of orphans: groups
        and topics that the configuration does not name. NotFoundError where none of the group is kept; RefusedError
        where orphans cannot be told apart."""
        from rmqctl.store.offsets.change import delete_offsets, delete_orphans

        decide = delete_orphans() if group is None else delete_offsets(group, topic, queue_id)
        return self._change_offsets(decide, change)

    def redrive(
        self,
        group: str,
        choice: DeadChoice | None = None,
        into: Literal["retry", "origin"] = "retry",
        *,
        again: bool = False,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[Redrive]:
        """Dead letters of a group as messages that it is to get once more, in its retry topic or where they came from.
        Nothing is stored: `put` the `message` of those that are ready. One that was redriven before is ready only with
        `again`. NotFoundError for a group that gave up nothing."""
        from rmqctl.store.answers.dead_letters import DeadChoice, Into, redrives

        chosen = DeadChoice() if choice is None else choice
        return redrives(self.reader, group, chosen, Into(into), on_damage or raised, again=again)

    def _change_offsets(self, decide: Decision, change: ChangeOptions) -> OffsetsReport:
        from rmqctl.store.offsets.change import change_offsets

        with self._changing() as files:
            return change_offsets(files, decide, change)
