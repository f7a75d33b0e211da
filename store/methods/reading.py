"""What can be asked of the messages of a store, one by one and many: the half of ReadableStore that reads the log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.lock import refuse_server
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rmqctl.store.answers.config_offsets import Say
    from rmqctl.store.answers.dead_letters import DeadLetter
    from rmqctl.store.answers.delays import DelayLevel, UndeliveredMessage
    from rmqctl.store.answers.groups import GroupQueue
    from rmqctl.store.answers.steps import Whereabouts
    from rmqctl.store.answers.transactions import HalfMessage
    from rmqctl.store.check.check import CheckRun
    from rmqctl.store.check.cross import Level, Subset
    from rmqctl.store.dump.dump_file import DumpItem
    from rmqctl.store.dump.recognise import FileKind
    from rmqctl.store.export.export import ExportReport, LinesOfColumns, Target
    from rmqctl.store.export.writers import Compression
    from rmqctl.store.files.outputs import Sharing
    from rmqctl.store.info.info import StoreUsage
    from rmqctl.store.info.size_history import SizeHistory
    from rmqctl.store.journal.log import Change
    from rmqctl.store.log.walk import Progress
    from rmqctl.store.predict import Prediction
    from rmqctl.store.predict.compatibility import VersionDifference
    from rmqctl.store.queues.offset_by_time import Boundary
    from rmqctl.store.read.filter import Criteria
    from rmqctl.store.read.get import GetResult
    from rmqctl.store.read.query import FindResult, QueryResult
    from rmqctl.store.read.select import OnDamage, Order, Selection
    from rmqctl.store.snapshot.preflight import Preflight
    from rmqctl.store.snapshot.snapshot import SnapshotReport, VerifyReport

_START_OF_TIME, _END_OF_TIME = -(1 << 63), (1 << 63) - 1


class ReadableMessages:
    """Looks at messages. Times are in ms since 1970, sizes and physical offsets in bytes; see ReadableStore."""

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self.reader = StoreReader(files)

    def _files_at_rest(self) -> StoreFiles:
        """The files, for what must not happen while this process writes to them."""
        return self.files

    # ---- single messages

    def get(self, topic: str, queue_id: int, offset: int, limit: int = 32, tags: str | None = None) -> GetResult:
        """Messages of a queue from queue offset `offset` on, with RocketMQ's status and the next offset; see
        StoreReader.get. UnsupportedError for queues in a RocksDB, UsageError for malformed `tags`."""
        return self.reader.get(topic, queue_id, offset, limit, tags)

    def query(
        self,
        topic: str,
        key: str,
        begin: int = _START_OF_TIME,
        end: int = _END_OF_TIME,
        limit: int = 32,
        *,
        tags: str | None = None,
        grep: str | None = None,
        index_type: str = "K",
        scan: bool = False,
        progress: Progress | None = None,
    ) -> QueryResult:
        """Messages with a key, stored between `begin` and `end` (ms), newest first. `tags` ('TagA || TagB') and `grep`,
        a regular expression, choose among them as in Criteria. What stood in the way of a complete answer is in
        `damaged`. `index_type` "T": messages whose TAGS value is `key` instead. With `scan` the commitlog is searched
        where the index does not reach or is damaged; without it NotIndexedError if there is no index."""
        return self.reader.query(
            topic, key, begin, end, limit, tags=tags, grep=grep, index_type=index_type, scan=scan, progress=progress
        )

    def lookup(self, message_id: str) -> StoredMessage:
        """The message that a broker's offset id names; NotFoundError, CorruptError, UsageError."""
        from rmqctl.store.read.query import lookup_offset_id

        return lookup_offset_id(self.files, message_id)

    def message_at(self, physical_offset: int) -> StoredMessage:
        """The message whose frame begins exactly there; NotFoundError or CorruptError say what stands there instead."""
        return self.reader.lookup(physical_offset)

    def find(
        self, text: str, topic: str | None = None, *, scan: bool = False, progress: Progress | None = None
    ) -> FindResult:
        """The messages that some id means: a broker's offset id, else a unique key. NotFoundError, CorruptError;
        NotIndexedError without an index unless `scan` lets the commitlog be searched."""
        return self.reader.find(text, topic, scan=scan, progress=progress)

    def offset_at(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = "lower") -> int:
        """Queue offset for a time in ms: the first message at or after it (`lower`), or the last one at or before it
        (`upper`). NotFoundError for a queue that does not exist."""
        return self.reader.offset_at(topic, queue_id, timestamp, boundary)

    # ---- many messages

    def messages(
        self,
        criteria: Criteria | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        order: Order = "log",
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Iterator[StoredMessage]:
        """Messages one by one, in order of the log or queue by queue: what `cat` prints.

        `begin` and `end` (not included) are physical offsets in order of the log, queue offsets in order of the queues.
        Damage is told to `on_damage` and passed; without it the first is raised in its place (CorruptError). `tell`
        gets a sentence for messages that a cleaner removes before they are read; without it the logger `rmqctl.store`
        gets a warning. In order of the queues NotFoundError for an unknown topic or queue, UnsupportedError for queues
        in a RocksDB.
        """
        return self.reader.messages(
            _selection(criteria, begin, end), order, on_damage=on_damage or raised, progress=progress, tell=tell
        )

    def last_messages(
        self,
        count: int,
        criteria: Criteria | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        order: Order = "log",
        on_damage: OnDamage | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> list[StoredMessage]:
        """Return the last `count` of `messages`, in the same order. Only the end of the log or of the queues is read,
        as far as needed. Damage there, what a cleaner removed before it was read, and errors are reported as by
        `messages`."""
        selection = _selection(criteria, begin, end)
        return self.reader.last_messages(selection, count, order, on_damage=on_damage or raised, tell=tell)

    def follow(
        self,
        criteria: Criteria | None = None,
        begin: int | None = None,
        *,
        on_damage: OnDamage | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Generator[list[StoredMessage], None, None]:
        """Messages as another process stores them, in lists as they come, without end: `cat --follow`.

        Each comes once, from physical offset `begin` on, else from now on, also where files roll, are removed or their
        broker restarts. `tell` gets a sentence where messages went unread or the log was cut back. RefusedError where
        this process writes to the store; NotAStoreError once it is gone.
        """
        from rmqctl.store.read.follow import follow

        refuse_server(self._files_at_rest().root)
        return follow(self.reader, _selection(criteria, 0, None).criteria, begin, on_damage or raised, tell or silent)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        criteria: Criteria | None = None,
        views: bool = True,
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Generator[RecordBatch, None, None]:
        """Messages in the order they were stored as pyarrow.RecordBatch, with these columns (None: all, see
        rmqctl.store.scan.schema), of physical offsets [begin, end). A column that is not asked for costs nothing.

        `criteria`: only messages that meet them. `views`: bodies as `binary_view` over the memory they were read
        into; else as `binary`. Damage is told to `on_damage` and passed; without it the first is raised in its place.
        `tell` as for `messages`. UnsupportedError without pyarrow, UsageError for a name of no column.
        """
        from rmqctl.store.scan.scan import Scan

        scan = Scan(self.files.log, columns, begin, end, criteria=criteria, views=views)
        return scan.batches(on_damage, progress, tell)

    def export(
        self,
        target: str | os.PathLike[str] | Target,
        criteria: Criteria | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        compression: Compression = "zstd",
        lines: LinesOfColumns | None = None,
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
    ) -> ExportReport:
        """Write messages of physical offsets [begin, end) into a file that appears when it is complete.

        The ending of a path says the format; a `Target` says it itself, and may be a directory by topic and day.
        Parquet and Arrow take `columns`; CSV and JSON Lines are made by `lines`
        (rmqctl.messages.text.MessageLines). Errors: see rmqctl.store.export.export.export_selected.
        """
        from rmqctl.store.export.export import Target, export_selected, format_of

        if not isinstance(target, Target):
            target = Target(Path(target), format_of(Path(target)))
        selection = _selection(criteria, begin, end)
        return export_selected(
            self.files, target, selection, columns, compression, lines, on_damage=on_damage, progress=progress
        )


def _selection(criteria: Criteria | None, begin: int, end: int | None) -> Selection:
    from rmqctl.store.read.filter import Criteria
    from rmqctl.store.read.select import Selection

    return Selection(criteria or Criteria(), begin, end)


def now_ms() -> int:
    """The clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def silent(_: str) -> None:
    """Nobody asked to be told."""


def raised(error: Exception) -> None:
    """What is done about damage that nobody wants to be told."""
    raise error


# Questions of consumers that can be asked of a store: the part of MessageStore that gives answers, not messages.


class AnsweringStore(ReadableMessages):
    """Times are in ms since 1970."""

    def where(
        self,
        *words: str,
        topic: str | None = None,
        groups: Sequence[str] = (),
        tags: str | None = None,
        now: int | None = None,
        limit: int = 10,
        tell: Say | None = None,
        on_damage: OnDamage | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Whereabouts]:
        """Where a message is, who has read it and who has not, with the evidence: what `where` prints.

        `words`: a key, an id or a physical offset, or topic, queue id and queue offset. `topic`: only messages sent to
        it. `groups`: only these consumer groups, whose tag expression is `tags` where the caller knows it. `now` (ms):
        what due times are held against, the clock if None. `tell` takes sentences about the whole answer. A message
        that cannot be found or read is an answer too; damage is told to `on_damage`, and without it the first is
        raised. UsageError for words that name nothing, NotFoundError and UnsupportedError for a queue.
        """
        from rmqctl.store.answers.where import WhereQuestion, where

        moment = now_ms() if now is None else now
        question = WhereQuestion(words, moment, topic, tuple(groups), tags, limit=limit)
        return where(self.reader, question, tell or silent, on_damage or raised, progress)

    def groups(
        self,
        group: str | None = None,
        topic: str | None = None,
        *,
        tags: str | None = None,
        tell: Say | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[GroupQueue]:
        """How far consumer groups have come, queue by queue: the rows of `rmqctl groups --json`. `tags`, `tell` and
        `on_damage` as for `where`."""
        from rmqctl.store.answers.groups import group_queues

        return group_queues(self.reader, group, topic, tell or silent, on_damage or raised, tags)

    def delays(
        self, *, now: int | None = None, tell: Say | None = None, on_damage: OnDamage | None = None
    ) -> Iterator[DelayLevel]:
        """Yield what waits for its time, by delay level and in the timer: the rows of `rmqctl delays --json`. `now`
        (ms): what is due before it is overdue."""
        from rmqctl.store.answers.delays import delays

        moment = now_ms() if now is None else now
        return delays(self.reader, moment, tell or silent, on_damage or raised)

    def undelivered(
        self, *, tell: Say | None = None, on_damage: OnDamage | None = None, progress: Progress | None = None
    ) -> Iterator[UndeliveredMessage]:
        """Yield delayed messages that their level or the timer passed without a delivered copy: the rows of
        `rmqctl delays --undelivered --json`. Reads the log from the first passed message on."""
        from rmqctl.store.answers.delays import undelivered

        return undelivered(self.reader, tell or silent, on_damage or raised, progress)

    def halves(
        self, *, now: int | None = None, tell: Say | None = None, on_damage: OnDamage | None = None
    ) -> Iterator[HalfMessage]:
        """Transactions without an end: the rows of `rmqctl halves --json`. `now` (ms): what ages are held against."""
        from rmqctl.store.answers.transactions import unresolved_halves

        moment = now_ms() if now is None else now
        return unresolved_halves(self.reader, moment, tell or silent, on_damage or raised)

    def dead_letters(
        self, group: str | None = None, topic: str | None = None, *, on_damage: OnDamage | None = None
    ) -> Iterator[DeadLetter]:
        """What groups gave up, or `group` alone, of messages once sent to `topic`: `rmqctl dlq list --json`."""
        from rmqctl.store.answers.dead_letters import dead_letters

        return dead_letters(self.reader, group, topic, on_damage or raised)


# What can be asked of a store, whole or broken, without changing a byte of it: the looking half of MessageStore.

_LOOKS_END_OF_TIME = (1 << 63) - 1


class ReadableStore(AnsweringStore):
    """The looks at a store. Times are in ms since 1970, sizes and physical offsets in bytes.

    Any of them raises UnreadableError for a file that cannot be read. `progress`, where a look takes it, is told the
    bytes passed, again and again.
    """

    # ---- the store itself

    def info(self, *, walk_log: bool = True, progress: Progress | None = None) -> dict[str, Any]:
        """The store at a glance: the object that `rmqctl info --json` prints. Without `walk_log` the commitlog is not
        read, and what only that tells is None."""
        from rmqctl.store.clean.cleaner import judge_writes
        from rmqctl.store.info.info import info

        row = info(self.files, walk_log=walk_log, progress=progress)
        writes = judge_writes(self.files)
        return row | {"writes": writes._asdict() | {"causes": [cause._asdict() for cause in writes.causes]}}

    def topics(self, topic: str | None = None, *, progress: Progress | None = None) -> Iterator[dict[str, Any]]:
        """Topics with the sums over their queues, as rows of `rmqctl ls --json`; counted from the commitlog, as
        `source` says, where `has_queue_files` is false. NotFoundError for an unknown topic."""
        from rmqctl.store.info.info import topic_rows, topic_rows_from_log

        if self.has_queue_files() or not self.files.log.files:
            return topic_rows(self.reader, topic)
        return topic_rows_from_log(self.files, topic, progress)

    def has_queue_files(self) -> bool:
        """Whether there are consume queues that can be read: neither lost nor in a RocksDB."""
        from rmqctl.store.info.info import has_queue_files

        return has_queue_files(self.files)

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> Iterator[dict[str, Any]]:
        """Queues with their offsets, as rows of `rmqctl ls --queues --json`. NotFoundError for an unknown topic or
        queue, UnsupportedError for queues in a RocksDB."""
        from rmqctl.store.info.info import queue_rows

        return queue_rows(self.reader, topic, queue_id)

    def list_files(self) -> Iterator[dict[str, Any]]:
        """Every file by what it is, as rows of `rmqctl ls --files --json`. RefusedError while it is open for writing:
        to look into `lock` would give the lock away."""
        from rmqctl.store.info.info import file_rows

        return file_rows(self._files_at_rest())

    def disk_usage(self, *, quick: bool = False, progress: Progress | None = None) -> StoreUsage:
        """Topics by size, and the files of log, queues, index and the rest, as `rmqctl du` shows them. With `quick` the
        log is not read: sizes by the units of the queues, UnsupportedError where they are in a RocksDB."""
        from rmqctl.store.info.info import disk_usage

        return disk_usage(self.reader, quick=quick, progress=progress)

    def size_history(self) -> SizeHistory:
        """By day: files begun, bytes cleaned, bytes that changes keep, as `rmqctl du --history` shows them."""
        from rmqctl.store.info.size_history import size_history

        return size_history(self.files)

    def check(
        self,
        level: Level | str = "default",
        *,
        subset: Subset | None = None,
        max_duration: float | None = None,
        resume: Path | None = None,
        fail_fast: bool = False,
        progress: Progress | None = None,
    ) -> CheckRun:
        """Everything that is wrong with the store: iterate over the findings, then look at the `summary`.

        `level`: quick, default or full. `subset`: only this share of the commitlog's files. `max_duration` (s): stop at
        the end of a file once it is over. `resume`: a file outside of the store that keeps how far the last check came.
        `fail_fast`: stop at the first error or warning. Another process may write to the store meanwhile; RefusedError
        where this one does.
        """
        from rmqctl.store.check.check import check

        return check(
            self._files_at_rest(),
            level,
            subset=subset,
            max_duration=max_duration,
            resume=resume,
            fail_fast=fail_fast,
            progress=progress,
        )

    def predict(self, broker: str = "5.3.3", *, progress: Progress | None = None) -> Prediction:
        """What the next start of that broker ("4.9.8" or "5.3.3") will do to the store, without doing it. UsageError
        for another version; UnsupportedError for queues in a RocksDB and settings with which a start goes by other
        rules; RefusedError while it is open for writing."""
        from rmqctl.store.predict import predict

        return predict(self._files_at_rest(), broker, progress=progress)

    def preflight(self, target: str | os.PathLike[str], properties: Mapping[str, str] | None = None) -> Preflight:
        """Return what a copy to the new directory `target` takes and what stands in its way. `properties`: of the
        broker.conf. RefusedError for a target that is there or is in a store."""
        from rmqctl.store.snapshot.preflight import preflight

        return preflight(self.files, Path(target), properties)

    def differences(self, version: str) -> list[VersionDifference]:
        """Return what RocketMQ `version` ("4.9.8", "5.3.3" or "5.5.0") does otherwise with this store. UsageError for
        another version."""
        from rmqctl.store.predict.compatibility import differences

        return differences(self.files, version)

    def probable_version(self) -> str:
        """Return the version that the files of the store come from, as far as they show it."""
        from rmqctl.store.predict.compatibility import probable_version

        return probable_version(self.files)

    def snapshot(
        self,
        target: str | os.PathLike[str],
        *,
        sharing: Sharing | str = "auto",
        hard_links: bool = False,
        progress: Progress | None = None,
    ) -> SnapshotReport:
        """Copy the store to the new directory `target`, with a manifest; also while another process writes to it.

        `sharing`: share blocks with the store where the file system can ("auto"), "always" or "never". `hard_links`:
        give full commitlog files a second name. RefusedError for a target that is there or lies in a store, and while
        this process writes; UnreadableError, WriteFailedError; then nothing is left behind.
        """
        from rmqctl.store.files.outputs import Sharing
        from rmqctl.store.snapshot.snapshot import take_snapshot
        from rmqctl.store.status import version

        return take_snapshot(
            self._files_at_rest(),
            Path(target),
            version(),
            sharing=Sharing(sharing),
            hard_links=hard_links,
            progress=progress,
        )

    @staticmethod
    def verify_snapshot(target: str | os.PathLike[str], *, progress: Progress | None = None) -> VerifyReport:
        """Hold a snapshot against its manifest; only looks. NotAStoreError where there is none, CorruptError where the
        manifest itself is not as it was written."""
        from rmqctl.store.snapshot.snapshot import verify_snapshot

        return verify_snapshot(Path(target), progress)

    @staticmethod
    def dump(path: str | os.PathLike[str], *, at: int = 0, raw: bool = False) -> tuple[FileKind, Iterator[DumpItem]]:
        """What kind of file it is, and its structures from byte `at` on, field by field; it may lie anywhere.

        `raw`: its bytes alone. UnsupportedError for a file that is only recognised, UnreadableError, StoreInUseError
        for the `lock` of a store that this process writes to: to look into it would give the lock away.
        """
        from rmqctl.store.dump.dump_file import dump_file
        from rmqctl.store.files.lock import refuse_own_lock
        from rmqctl.store.files.remote import reachable_loose

        found = reachable_loose(path)
        refuse_own_lock(found)
        return dump_file(found, at=at, raw=raw)

    # ---- the changes made to it

    def changes(self) -> list[Change]:
        """The changes made to the store by rmqctl, the oldest first. CorruptError where their history is damaged."""
        from rmqctl.store.journal.log import changes

        return changes(self.files.layout)

    def find_change(self, change_id: str) -> Change:
        """The change whose id is or begins with `change_id`. NotFoundError; RefusedError where several do."""
        from rmqctl.store.journal.log import find_change

        return find_change(self.files.layout, change_id)

    def last_change(self) -> Change | None:
        """The last change that stands, which is what `undo` takes back; None if there is none."""
        from rmqctl.store.journal.log import last_standing

        return last_standing(self.files.layout)
