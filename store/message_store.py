"""The store as a library: one class that wires the parts together; what it can do is in docs/library.md."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from rmqctl.formats.errors import RefusedError, RmqctlError, UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.store import lazy
from rmqctl.store.files.lock import refuse_own_lock, refuse_server
from rmqctl.store.files.remote import reachable, reachable_loose
from rmqctl.store.options import UNHEARD, ChangeOptions, Events, KeyChoice, WriteOptions
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.scan.tables import MessageTables
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rmqctl.formats.message import Message
    from rmqctl.store.answers.dead_letters import DeadChoice, DeadLetter, Redrive
    from rmqctl.store.answers.delays import DelayLevel, UndeliveredMessage
    from rmqctl.store.answers.groups import GroupQueue
    from rmqctl.store.answers.steps import Whereabouts
    from rmqctl.store.answers.transactions import HalfMessage
    from rmqctl.store.check.check import CheckRun
    from rmqctl.store.check.cross import Level, Subset
    from rmqctl.store.clean.cleaner import CleanReport, Unread
    from rmqctl.store.clean.forecast import Forecast
    from rmqctl.store.clean.options import CleanOptions
    from rmqctl.store.config.config import StoreConfig
    from rmqctl.store.dump.items import DumpItem
    from rmqctl.store.dump.recognise import FileKind
    from rmqctl.store.export.export import ExportReport, LinesOfColumns, Target
    from rmqctl.store.export.partitions import LinesOfWalk
    from rmqctl.store.export.writers import Compression
    from rmqctl.store.files.outputs import Sharing
    from rmqctl.store.info.counts import SizeHistory
    from rmqctl.store.info.info import StoreUsage
    from rmqctl.store.journal.log import Change
    from rmqctl.store.offsets.change import Decision, OffsetsReport, Preference, ResetTo
    from rmqctl.store.offsets.show import KeptOffset, OffsetProblem
    from rmqctl.store.pop.state import PopState
    from rmqctl.store.predict import Prediction, WalkedLog
    from rmqctl.store.predict.compatibility import VersionDifference
    from rmqctl.store.queues.consumequeue import Boundary, QueueKey
    from rmqctl.store.read.filter import Criteria
    from rmqctl.store.read.get import GetResult
    from rmqctl.store.read.query import QueryResult
    from rmqctl.store.read.reader import FindResult
    from rmqctl.store.read.select import Order
    from rmqctl.store.recover.rebuild import RebuildReport
    from rmqctl.store.recover.report import RecoverReport
    from rmqctl.store.recover.timer import TimerReport
    from rmqctl.store.repair.entries import EntryChange, EntryReport, PurgeReport
    from rmqctl.store.repair.repair import RepairReport
    from rmqctl.store.salvage.write import Offsets, SalvageReport
    from rmqctl.store.snapshot.preflight import Preflight
    from rmqctl.store.snapshot.snapshot import SnapshotReport, VerifyReport
    from rmqctl.store.write.bulk.bulk import BulkRows, ColumnsResult
    from rmqctl.store.write.put import PendingPut, PutResult
    from rmqctl.store.write.writer import StoreWriter

    PathLike = str | os.PathLike[str]

_START_OF_TIME, _END_OF_TIME = -(1 << 63), (1 << 63) - 1


class MessageStore(MessageTables):
    """One RocketMQ store, open for reading (`r`) or for reading and writing (`rw`). A context manager.

    `r` opens any store, broken, crashed or in use by a broker, without a lock. All looks work on it, and so do changes
    that mend a store at rest (`recover`, `repair`, `undo` …): each takes the lock while it lasts, and opens the files
    again at its end. `rw` is for messages: it takes the lock until `close`, opens only a store that is whole, and
    refuses those changes. `flush`: what was put can be read.

    Times are ms since 1970, sizes and physical offsets bytes. A look raises UnreadableError; `events` gets what happens
    meanwhile. A change raises StoreInUseError, RefusedError where a decision is needed, WriteFailedError for an I/O
    error: then `undo` or `resume` ends the change.
    """

    def __init__(self, files: StoreFiles, writer: StoreWriter | None) -> None:
        """Use `open`."""
        self.files = files
        self.reader = StoreReader(files)
        self._writer = writer
        self._put = None if writer is None else writer.put

    @classmethod
    def open(
        cls, path: PathLike, mode: Literal["r", "rw"] = "r", config: StoreConfig | None = None,
        **options: Unpack[WriteOptions]) -> Self:  # fmt: skip
        """The store at `path`. NotAStoreError, UnreadableError. `options` are for `rw`: opening never repairs."""
        root = reachable(path)
        if mode == "r":
            return cls(StoreFiles(root, config), None)
        if mode != "rw":
            raise UsageError(f"mode {mode!r} is neither 'r' nor 'rw'")
        refuse_server(root)
        writer = lazy.open_writer(root, config, **options)
        return cls(writer.files, writer)

    def close(self) -> None:
        """Close. After writing: all is dispatched, flushed and noted in the checkpoint, then `abort` is removed."""
        (self._writer or self.files).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- messages, one by one and many

    def get(self, topic: str, queue_id: int, offset: int, limit: int = 32, tags: str | None = None) -> GetResult:
        """Messages of a queue from queue offset `offset` on, with RocketMQ's status and the next offset."""
        return self.reader.get(topic, queue_id, offset, limit, tags)

    def query(
        self, topic: str, key: str, begin: int = _START_OF_TIME, end: int = _END_OF_TIME, limit: int = 32, *,
        events: Events = Events(), **choice: Unpack[KeyChoice]) -> QueryResult:  # fmt: skip
        """Messages with a key, stored between `begin` and `end`, newest first. NotIndexedError without an index."""
        return self.reader.telling(events).query(topic, key, begin, end, limit, **choice)

    def lookup(self, message_id: str) -> StoredMessage:
        """The message that a broker's offset id names; NotFoundError, CorruptError, UsageError."""
        return lazy.lookup_offset_id(self.files, message_id)

    def message_at(self, physical_offset: int) -> StoredMessage:
        """The message whose frame begins exactly there; NotFoundError or CorruptError say what is there."""
        return self.reader.lookup(physical_offset)

    def find(self, text: str, topic: str | None = None, *, scan: bool = False, events: Events = Events()) -> FindResult:
        """The messages that an id means: a broker's offset id, else a unique key. NotFoundError, NotIndexedError."""
        return self.reader.telling(events).find(text, topic, scan=scan)

    def offset_at(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = "lower") -> int:
        """Queue offset of the first message at or after a time (`lower`), or of the last at or before it (`upper`)."""
        return self.reader.offset_at(topic, queue_id, timestamp, boundary)

    def messages(
        self, criteria: Criteria | None = None, begin: int = 0, end: int | None = None, *, order: Order = "log",
        events: Events = Events()) -> Iterator[StoredMessage]:  # fmt: skip
        """Messages one by one, in order of the log or queue by queue. `begin` and `end` are physical offsets in order
        of the log, queue offsets in order of the queues. Of messages that a cleaner removes before they are read the
        logger `rmqctl.store` warns, unless `events` has a `note`. NotFoundError for an unknown topic or queue."""
        return self.reader.telling(events).messages(lazy.Selection(criteria or lazy.Criteria(), begin, end), order)

    def last_messages(
        self, count: int, criteria: Criteria | None = None, begin: int = 0, end: int | None = None, *,
        order: Order = "log", events: Events = Events()) -> list[StoredMessage]:  # fmt: skip
        """Return the last `count` of `messages`, in the same order; only the end of the log or queues is read."""
        wanted = lazy.Selection(criteria or lazy.Criteria(), begin, end)
        return self.reader.telling(events).last_messages(wanted, count, order)

    def follow(
        self, criteria: Criteria | None = None, begin: int | None = None, *, events: Events = Events()
    ) -> Generator[list[StoredMessage], None, None]:
        """Yield messages as another process stores them, in lists, from physical offset `begin` or from now on."""
        refuse_server(self._files_at_rest().root)
        return lazy.follow(self.reader.telling(events), criteria or lazy.Criteria(), begin)

    def scan(
        self, columns: Sequence[str] | None = None, begin: int = 0, end: int | None = None, *,
        criteria: Criteria | None = None, views: bool = True, events: Events = Events(),
    ) -> Generator[RecordBatch, None, None]:  # fmt: skip
        """Messages of physical offsets [begin, end) as batches. `views`: bodies over the memory they were read into."""
        return lazy.Scan(self.files.log, columns, begin, end, criteria=criteria, views=views).batches(events)

    def export(
        self, target: PathLike | Target, criteria: Criteria | None = None, begin: int = 0, end: int | None = None, *,
        columns: Sequence[str] | None = None, compression: Compression = "zstd",
        lines: LinesOfColumns | LinesOfWalk | None = None, events: Events = Events(),
    ) -> ExportReport:  # fmt: skip
        """Write messages of physical offsets [begin, end) into a file, or by a `Target` into a directory."""
        if not isinstance(target, lazy.Target):
            target = lazy.Target(Path(target), lazy.format_of(Path(target)))
        chosen = lazy.Selection(criteria or lazy.Criteria(), begin, end)
        return lazy.export_selected(self.files, target, chosen, events, columns, compression, lines)

    # ---- consumers: the rows that the verbs print; `now` is what ages and due times are held against, None: the clock

    def where(
        self, *words: str, topic: str | None = None, groups: Sequence[str] = (), tags: str | None = None,
        now: int | None = None, limit: int = 10, events: Events = Events(),
    ) -> Iterator[Whereabouts]:  # fmt: skip
        """Where a message is and who has read it. `words`: a key, an id, an offset, or topic, queue id and offset."""
        question = lazy.WhereQuestion(words, _moment(now), topic, tuple(groups), tags, limit=limit)
        return lazy.where(self.reader.telling(events), question)

    def groups(
        self, group: str | None = None, topic: str | None = None, *, tags: str | None = None, events: Events = Events()
    ) -> Iterator[GroupQueue]:
        """How far consumer groups have come, queue by queue: the rows of `rmqctl groups --json`."""
        return lazy.group_queues(self.reader.telling(events), group, topic, tags)

    def pop(self, *, now: int | None = None, events: Events = Events()) -> PopState:
        """What groups have in flight by POP: `groups()` and `messages()` are the rows of `rmqctl groups --pop`."""
        return lazy.PopState(self.reader.telling(events), _moment(now))

    def delays(self, *, now: int | None = None, events: Events = Events()) -> Iterator[DelayLevel]:
        """Yield what waits for its time, by delay level and in the timer: the rows of `rmqctl delays --json`."""
        return lazy.delays(self.reader.telling(events), _moment(now))

    def due(self, *, now: int | None = None, events: Events = Events()) -> Iterator[UndeliveredMessage]:
        """Yield the messages that wait for their time, the one that is due first at the beginning."""
        return lazy.due(self.reader.telling(events), _moment(now))

    def undelivered(self, *, events: Events = Events()) -> Iterator[UndeliveredMessage]:
        """Yield delayed messages that their level or the timer passed without a delivered copy."""
        return lazy.undelivered(self.reader.telling(events))

    def halves(self, *, now: int | None = None, events: Events = Events()) -> Iterator[HalfMessage]:
        """Transactions without an end: the rows of `rmqctl halves --json`."""
        return lazy.unresolved_halves(self.reader.telling(events), _moment(now))

    def dead_letters(
        self, group: str | None = None, topic: str | None = None, *, events: Events = Events()
    ) -> Iterator[DeadLetter]:
        """Yield dead letters of all groups, or of `group`, of messages once sent to `topic`."""
        return lazy.dead_letters(self.reader.telling(events), group, topic)

    def redrive(
        self, group: str, choice: DeadChoice | None = None, into: Literal["retry", "origin"] = "retry", *,
        again: bool = False, events: Events = Events(),
    ) -> Iterator[Redrive]:  # fmt: skip
        """Dead letters of a group as messages to `put` once more; with `again` those too that were redriven."""
        chosen = choice or lazy.DeadChoice()
        return lazy.redrives(self.reader.telling(events), group, chosen, lazy.Into(into), again=again)

    def info(self, *, walk_log: bool = True, events: Events = Events()) -> dict[str, Any]:
        """The store at a glance, as `rmqctl info --json`; without `walk_log` None for what only the commitlog tells."""
        row = lazy.info(self.files, walk_log=walk_log, events=events)
        writes = lazy.judge_writes(self.files)
        return row | {"writes": writes._asdict() | {"causes": [cause._asdict() for cause in writes.causes]}}

    def topics(self, topic: str | None = None, *, events: Events = Events()) -> Iterator[dict[str, Any]]:
        """Topics with the sums over their queues, counted from the commitlog where `has_queue_files` is false."""
        if self.has_queue_files() or not self.files.log.files:
            return lazy.topic_rows(self.reader, topic)
        return lazy.topic_rows_from_log(self.files, topic, events)

    def has_queue_files(self) -> bool:
        """Whether there are consume queues that can be read: neither lost nor in a RocksDB."""
        return lazy.has_queue_files(self.files)

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> Iterator[dict[str, Any]]:
        """Queues with their offsets, as rows of `rmqctl ls --queues --json`. NotFoundError for unknown ones."""
        return lazy.queue_rows(self.reader, topic, queue_id)

    def list_files(self) -> Iterator[dict[str, Any]]:
        """Every file by what it is, as rows of `rmqctl ls --files --json`."""
        return lazy.file_rows(self._files_at_rest())

    def disk_usage(self, *, quick: bool = False, events: Events = Events()) -> StoreUsage:
        """Topics by size, and files by kind. With `quick` the log is not read: sizes by the units of the queues."""
        return lazy.disk_usage(self.reader.telling(events), quick=quick)

    def size_history(self) -> SizeHistory:
        """By day: files begun, bytes cleaned, bytes that changes keep, as `rmqctl du --history` shows them."""
        return lazy.size_history(self.files)

    def check(
        self, level: Level | str = "default", *, subset: Subset | None = None, max_duration: float | None = None,
        resume: Path | None = None, fail_fast: bool = False, events: Events = Events(),
    ) -> CheckRun:  # fmt: skip
        """Everything that is wrong with the store: iterate over the findings, then look at the `summary`."""
        return lazy.check(
            self._files_at_rest(), level, subset=subset, max_duration=max_duration, resume=resume,
            fail_fast=fail_fast, events=events,
        )  # fmt: skip

    def predict(
        self, broker: str | None = None, *, walked: WalkedLog | None = None, events: Events = Events(),
    ) -> Prediction:  # fmt: skip
        """What the next start of that broker, by default the `probable_version`, would do to the store. One `walked`
        given for several versions: the log is walked once."""
        return lazy.predict(self._files_at_rest(), broker or self.probable_version(), walked=walked, events=events)

    def preflight(self, target: PathLike, properties: Mapping[str, str] | None = None) -> Preflight:
        """What a copy to the new directory `target` takes and what prevents it; `properties` of broker.conf."""
        return lazy.preflight(self.files, Path(target), properties)

    def differences(self, version: str) -> list[VersionDifference]:
        """What RocketMQ `version` ("4.9.8", "5.3.3" or "5.5.0") does otherwise with this store."""
        return lazy.differences(self.files, version)

    def probable_version(self) -> str:
        """Return the newest version that the files of the store fit."""
        return lazy.probable_version(self.files)

    def snapshot(
        self, target: PathLike, *, sharing: Sharing | str = "auto", hard_links: bool = False, events: Events = Events()
    ) -> SnapshotReport:
        """Copy the store to the new directory `target`, with a manifest; also while another process writes to it.
        `sharing`: of blocks, "auto", "always" or "never". `hard_links`: give full commitlog files a second name."""
        files, how, new, ours = self._files_at_rest(), lazy.Sharing(sharing), Path(target), lazy.version()
        return lazy.take_snapshot(files, new, ours, sharing=how, hard_links=hard_links, events=events)

    @staticmethod
    def verify_snapshot(target: PathLike, *, events: Events = Events()) -> VerifyReport:
        """Hold a snapshot against its manifest; only looks. NotAStoreError where no store is."""
        return lazy.verify_snapshot(Path(target), events)

    @staticmethod
    def dump(path: PathLike, *, at: int = 0, raw: bool = False) -> tuple[FileKind, Iterator[DumpItem]]:
        """What kind of file it is, and its structures from byte `at` on, field by field; `raw`: its bytes alone."""
        refuse_own_lock(found := reachable_loose(path))
        return lazy.dump_file(found, at=at, raw=raw)

    @staticmethod
    def salvage(
        paths: Sequence[PathLike], target: PathLike, *, config: StoreConfig | None = None, offsets: Offsets = "keep",
        stale: bool = False, events: Events = Events(),
    ) -> SalvageReport:  # fmt: skip
        """Put every good message of `paths` (stores, folders, loose files, disk images) into a new store at `target`.
        `offsets`: "keep" the queue offsets, or "renumber". `stale`: also what an earlier truncation left behind."""
        sources, new = [Path(path) for path in paths], Path(target)
        return lazy.salvage(sources, new, config=config, offsets=offsets, stale=stale, events=events)

    # ---- changes of a store at rest

    def changes(self) -> list[Change]:
        """The changes made to the store by rmqctl, the oldest first. CorruptError where their history is damaged."""
        return lazy.changes(self.files.layout)

    def find_change(self, change_id: str) -> Change:
        """The change whose id is or begins with `change_id`. NotFoundError; RefusedError where several do."""
        return lazy.find_change(self.files.layout, change_id)

    def last_change(self) -> Change | None:
        """The last change that is in force, which `undo` takes back; None without one."""
        return lazy.last_standing(self.files.layout)

    def undo(self, change_id: str | None = None, *, change: ChangeOptions = ChangeOptions()) -> Change:
        """Take back the last change, or an interrupted one, byte by byte; `change_id`: the id that it must have."""
        with self._ending() as files:
            return lazy.undo(files.layout, change_id, change)

    def resume(self, *, change: ChangeOptions = ChangeOptions()) -> Change:
        """Finish the change that was interrupted. RefusedError if the store was used since: then `give_up`."""
        with self._ending() as files:
            return lazy.resume(files.layout, change)

    def give_up(self, *, change: ChangeOptions = ChangeOptions()) -> Change:
        """End the change that was interrupted where it stopped, keeping what it took out; then run `recover`."""
        with self._ending() as files:
            return lazy.give_up(files.layout, change)

    def forget(self, chosen: Iterable[Change]) -> int:
        """Remove for good what these changes kept, and return the bytes freed; no undo from then on."""
        return lazy.forget(self.files.layout, chosen)

    def recover(
        self, *, bridge: bool = False, cut: bool = False, full: bool = False, change: ChangeOptions = ChangeOptions()
    ) -> RecoverReport:
        """End the log where it is valid, and complete queues and index. Damage before good messages is refused, unless
        `bridge` puts filler messages in its place or `cut` ends the log there; `full` looks for damage anywhere."""
        if bridge and (cut or full):
            raise UsageError("`bridge` is for all damage and cuts none", hint="leave out `cut` and `full`, or `bridge`")
        with self._changing() as files:
            return lazy.recover_bridging(files, change) if bridge else lazy.recover(files, change, cut=cut, full=full)

    def repair(self, *, only: Iterable[str] = (), change: ChangeOptions = ChangeOptions()) -> RepairReport:
        """Check the store and mend what is found, or `only` findings of these codes; the report has what is `left`."""
        with self._changing() as files:
            return lazy.repair(files, change, only=tuple(only))

    def rebuild(
        self, *, queues: bool | Literal["files"] = True, index: bool = True, topics: Sequence[str] | None = None,
        compacted: bool = False, change: ChangeOptions = ChangeOptions()) -> RebuildReport:  # fmt: skip
        """Rebuild queues (of `topics`, None: all; "files": beside a RocksDB) and index, or the `compacted` copies."""
        with self._changing() as files:
            if compacted:
                return lazy.rebuild_compacted(files, change, topics=topics)
            return lazy.rebuild(files, change, queues=queues, index=index, topics=topics)

    def rebuild_timer(self, *, now: int | None = None, change: ChangeOptions = ChangeOptions()) -> TimerReport:
        """Rebuild wheel, log and checkpoint of the timer from the messages of its queue that wait at `now`."""
        with self._changing() as files:
            return lazy.rebuild_timer(files, change, now=_moment(now))

    def truncate(self, at: int, *, change: ChangeOptions = ChangeOptions()) -> RecoverReport:
        """End the log at physical offset `at`, where a record begins or ends; queues, index and checkpoint follow."""
        with self._changing() as files:
            return lazy.truncate(files, at, change)

    def purge(
        self, topics: Iterable[str] = (), *, orphans: bool = False, change: ChangeOptions = ChangeOptions()
    ) -> PurgeReport:
        """Remove `topics`, or all `orphans`: queues, entries in topics.json and offsets. Messages stay in the log."""
        with self._changing() as files:
            return lazy.purge_topics(files, topics, change, orphans=orphans)

    def change_entry(self, wanted: EntryChange, *, change: ChangeOptions = ChangeOptions()) -> EntryReport:
        """Create, change or delete the entry of a topic or group in topics.json or subscriptionGroup.json."""
        with self._changing() as files:
            return lazy.change_entry(files, wanted, change)

    def clean(
        self, options: CleanOptions | None = None, *, now: int | None = None, change: ChangeOptions = ChangeOptions()
    ) -> CleanReport:
        """Remove expired files for good, by the store's configuration unless `options` are given."""
        if change.confirm is not None or change.journal_in is not None:
            raise UsageError("a cleaning asks nothing and keeps nothing", hint="leave out `confirm` and `journal_in`")
        if self._writer is None:
            return lazy.clean(self.files, options, now=now, change=change)
        if now is not None:
            raise UsageError("a store that is open for writing goes by its own clock", hint="leave out `now`")
        return self._writer.clean(options, change.dry_run)

    def forecast_clean(self, options: CleanOptions | None = None, *, now: int | None = None) -> Forecast:
        """When each file is going to be removed by a broker, by its age and by how full the disk is."""
        return lazy.forecast_clean(self.files, options or lazy.options_from_config(self.files.config), _moment(now))

    def unread_before(self, min_offset: int, *, events: Events = Events()) -> list[Unread]:
        """What groups have not read and lose if the commitlog begins at physical offset `min_offset`."""
        heard = events._replace(damage=events.damage or UNHEARD.damage)
        return lazy.unread_before(self.files, min_offset, heard)

    # ---- offsets of consumer groups; running clients commit their own over those. `new_group`: also an unknown one

    def offsets(
        self, group: str | None = None, topic: str | None = None, queue_id: int | None = None, *,
        events: Events = Events(),
    ) -> Iterator[KeptOffset]:  # fmt: skip
        """The file and its backup, by group, topic and queue; then the delay levels, unless `group` is given."""
        return lazy.kept_offsets(self.reader.telling(events), group, topic, queue_id)

    def lint_offsets(self, *, now: int | None = None, events: Events = Events()) -> Iterator[OffsetProblem]:
        """What is wrong with the files of offsets, or odd about them."""
        return lazy.lint_offsets(self.files, _moment(now), events)

    def set_offset(
        self, group: str, topic: str, queue_id: int, offset: int, *, new_group: bool = False, anywhere: bool = False,
        change: ChangeOptions = ChangeOptions()) -> OffsetsReport:  # fmt: skip
        """Set a group in one queue; `anywhere`: also outside of the queue."""
        decide = lazy.set_offset(group, topic, queue_id, offset, new_group=new_group, anywhere=anywhere)
        return self._change_offsets(decide, change)

    def set_delay_offset(
        self, level: int, offset: int, *, anywhere: bool = False, change: ChangeOptions = ChangeOptions()
    ) -> OffsetsReport:
        """Set a delay level to the next message that the broker delivers; `anywhere`: also outside of its queue."""
        with self._changing() as files:
            return lazy.set_delay_offset(files, level, offset, change, anywhere=anywhere)

    def reset_offsets(
        self, group: str, topic: str, to: ResetTo, queue_id: int | None = None, *, new_group: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:  # fmt: skip
        """Set a group in all queues of a topic, or in one, to a time, an offset or either end."""
        return self._change_offsets(lazy.reset_offsets(group, topic, to, queue_id, new_group=new_group), change)

    def copy_offsets(
        self, source: str, target: str, topic: str | None = None, *, new_group: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:  # fmt: skip
        """Give the group `target` the offsets of `source`, in all its topics but its retry topic, or in one."""
        return self._change_offsets(lazy.copy_offsets(source, target, topic, new_group=new_group), change)

    def merge_offsets(
        self, other: PathLike, prefer: Preference | None = None, group: str | None = None, topic: str | None = None,
        *, change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:  # fmt: skip
        """Take what another consumerOffset.json says: what is missing here, and by `prefer` what differs."""
        decide = lazy.merge_offsets(Path(other), prefer, group, topic, only_shown=change.dry_run)
        return self._change_offsets(decide, change)

    def delete_offsets(
        self, group: str | None = None, topic: str | None = None, queue_id: int | None = None, *,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:  # fmt: skip
        """Remove the offsets of a group: all, or those of a topic or queue. Without a group: those of orphans."""
        decide = lazy.delete_orphans() if group is None else lazy.delete_offsets(group, topic, queue_id)
        return self._change_offsets(decide, change)

    def end_pops(
        self, group: str, topic: str | None = None, queue_id: int | None = None, *, finish: bool = False,
        change: ChangeOptions = ChangeOptions(),
    ) -> OffsetsReport:  # fmt: skip
        """Have what POP handed out come again, at once or at the next start; `finish`: it counts as consumed."""
        return self._change_offsets(lazy.end_pops(group, topic, queue_id, finish=finish), change)

    def _change_offsets(self, decide: Decision, change: ChangeOptions) -> OffsetsReport:
        with self._changing() as files:
            return lazy.change_offsets(files, decide, change)

    # ---- writing, open with `rw`. WriteFailedError for an I/O error, a full disk included

    def put(self, message: Message, *, as_stored: bool = False) -> PutResult:
        """Put one message. `as_stored`: a copy of a stored message that keeps its store time, host and properties."""
        return self._writing.put_copy(message) if as_stored else (self._put or self._writing.put)(message)

    def put_at_once(self, messages: Sequence[Message], *, batch: bool = False) -> PendingPut:
        """Put one message, or with `batch` a classic batch, and answer at once; `tell_when_on_disk` tells the rest."""
        return self._writing.put_at_once(messages, batch)

    def tell_when_on_disk(self, offset: int, told: Callable[[], None]) -> None:
        """Call `told`, in a thread, when all before an offset of `put_at_once` is on disk; never, if a flush failed."""
        self._writing.tell_when_on_disk(offset, told)

    def tell_arrivals(self, told: Callable[[Set[QueueKey]], None]) -> None:
        """Call `told`, in a thread, with the queues that got messages, when these can be read. One listener."""
        self._writing.tell_arrivals(told)

    def put_many(
        self, messages: Sequence[Message], *, batch: bool = False, as_stored: bool = False
    ) -> Sequence[PutResult]:
        """Put messages one after the other, waiting for the disk once. `batch`: as one classic batch, all or none."""
        return self._writing.put_many(messages, as_stored, batch)

    def put_columns(self, batch: RecordBatch | BulkRows, *, as_stored: bool = False) -> ColumnsResult:
        """Put the messages of an Arrow batch with columns of `scan`, or rows, as `append` makes them of JSON."""
        return self._writing.put_columns(batch, as_stored)

    def check_message(self, message: Message, *, as_stored: bool = False) -> PutResult | None:
        """How a put of `message` would be refused, None if nothing speaks against it. Stores nothing."""
        return self._writing.check(message, as_stored)

    def check_many(self, messages: Sequence[Message], *, as_stored: bool = False) -> dict[int, str]:
        """Why messages would be refused, by their place; {} if nothing speaks against any of them. Stores nothing."""
        return self._writing.check_many(messages, as_stored)

    def check_columns(
        self, batch: RecordBatch | BulkRows, *, as_stored: bool = False, accepted: set[str] | None = None
    ) -> dict[int, str]:
        """The same for an Arrow batch; UsageError as `put_columns`. `accepted`: topics known as taken; gets more."""
        return self._writing.check_columns(batch, as_stored, accepted)

    def advance_queue(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Give the next message of a queue this offset; slots that are left out get units that point nowhere."""
        self._writing.advance_queue(topic, queue_id, queue_offset)

    def flush(self) -> None:
        """Wait until everything put so far is on disk and can be read by queue and key; raises what went wrong."""
        self._writing.flush()

    def wait_for_dispatch(self) -> None:
        """Wait until everything put so far can be read by queue and key; raises what went wrong."""
        self._writing.wait_for_dispatch()

    def is_dispatched(self, end: int) -> bool:
        """Return whether everything before this physical offset can be read by queue and key."""
        return self._writing.is_dispatched(end)

    @property
    def is_cleaning(self) -> bool:
        """Whether expired files are removed while it is open (`clean_expired`)."""
        return self._writer is not None and self._writer.is_cleaning

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that were written and are not yet flushed to disk."""
        return 0 if self._writer is None else self._writer.unflushed_bytes

    @property
    def _writing(self) -> StoreWriter:
        if self._writer is None:
            raise RefusedError("the store is open for reading only", hint="open it with mode='rw'")
        return self._writer

    def _files_at_rest(self) -> StoreFiles:
        """The files, for what must not happen while this process writes to them."""
        if self._writer is not None:
            raise RefusedError("the store is open for writing", file=self.files.root, hint="open it with mode='r'")
        return self.files

    @contextlib.contextmanager
    def _changing(self) -> Iterator[StoreFiles]:
        """The files to change; opened again at the end, because they changed under the objects that describe them."""
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
        """The same, to end a change or take it back: a server does not look for what a change kept."""
        with self._changing() as files:
            refuse_server(files.root)
            yield files

    def _reopen(self) -> None:
        old, self.files = self.files, StoreFiles(self.files.root, self.files.config)
        old.close()
        self.reader = StoreReader(self.files)


def _moment(now: int | None) -> int:
    return time.time_ns() // 1_000_000 if now is None else now
