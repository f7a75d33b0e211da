"""What can be asked of a store, whole or broken, without changing a byte of it: the looking half of MessageStore."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.formats.message import StoredMessage
from rmqctl.store.answering_store import AnsweringStore, raised
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rmqctl.store.check.check import CheckRun
    from rmqctl.store.check.cross import Level
    from rmqctl.store.check.ranges import Subset
    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.dump.items import DumpItem
    from rmqctl.store.dump.recognise import FileKind
    from rmqctl.store.export.export import ExportReport, Target
    from rmqctl.store.export.selected import LinesOfColumns
    from rmqctl.store.export.writers import Compression
    from rmqctl.store.files.sparse_copy import Sharing
    from rmqctl.store.journal.log import Change
    from rmqctl.store.predict import Prediction
    from rmqctl.store.queues.offset_by_time import Boundary
    from rmqctl.store.read.get import GetResult
    from rmqctl.store.read.key_query import QueryResult
    from rmqctl.store.read.lookup import FindResult
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import OnDamage, Order, Selection
    from rmqctl.store.snapshot.snapshot import SnapshotReport, VerifyReport

_END_OF_TIME = (1 << 63) - 1


class ReadableStore(AnsweringStore):
    """The looks at a store. Times are in ms since 1970, sizes and physical offsets in bytes.

    Any of them raises UnreadableError for a file that cannot be read. `progress`, where a look takes it, is told the
    bytes passed, again and again.
    """

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
        begin: int = 0,
        end: int = _END_OF_TIME,
        limit: int = 32,
        *,
        scan: bool = False,
        progress: Progress | None = None,
    ) -> QueryResult:
        """Messages with a key, stored between `begin` and `end` (ms), newest first. What stood in the way of a complete
        answer is in `damaged`. With `scan` the commitlog is searched where the index does not reach or is damaged;
        without it NotIndexedError if there is no index."""
        return self.reader.query(topic, key, begin, end, limit, scan=scan, progress=progress)

    def lookup(self, message_id: str) -> StoredMessage:
        """The message that a broker's offset id names; NotFoundError, CorruptError, UsageError."""
        from rmqctl.store.read.lookup import lookup_offset_id

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
    ) -> Iterator[StoredMessage]:
        """Messages one by one, in order of the log or queue by queue: what `cat` prints.

        `begin` and `end` (not included) are physical offsets in order of the log, queue offsets in order of the queues.
        Damage is told to `on_damage` and passed; without it the first is raised in its place (CorruptError). In order
        of the queues NotFoundError for an unknown topic or queue, UnsupportedError for queues in a RocksDB.
        """
        return self.reader.messages(
            _selection(criteria, begin, end), order, on_damage=on_damage or raised, progress=progress
        )

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
    ) -> Generator[RecordBatch, None, None]:
        """Messages in the order they were stored as pyarrow.RecordBatch, with these columns (None: all, see
        rmqctl.store.scan.schema), of physical offsets [begin, end). A column that is not asked for costs nothing.

        `criteria`: only messages that meet them. `views`: bodies as `binary_view` over the memory they were read
        into; else as `binary`. Damage is told to `on_damage` and passed; without it the first is raised in its place.
        UnsupportedError without pyarrow, UsageError for a name of no column.
        """
        from rmqctl.store.scan.scan import Scan

        scan = Scan(self.files.log, columns, begin, end, criteria=criteria, views=views)
        return scan.batches(on_damage, progress)

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
        (rmqctl.messages.message_lines.MessageLines). Errors: see rmqctl.store.export.selected.export_selected.
        """
        from rmqctl.store.export.export import Target, format_of
        from rmqctl.store.export.selected import export_selected

        if not isinstance(target, Target):
            target = Target(Path(target), format_of(Path(target)))
        selection = _selection(criteria, begin, end)
        return export_selected(
            self.files, target, selection, columns, compression, lines, on_damage=on_damage, progress=progress
        )

    # ---- the store itself

    def info(self, *, walk_log: bool = True, progress: Progress | None = None) -> dict[str, Any]:
        """The store at a glance: the object that `rmqctl info --json` prints. Without `walk_log` the commitlog is not
        read, and what only that tells is None."""
        from rmqctl.store.info.summary import info

        return info(self.files, walk_log=walk_log, progress=progress)

    def topics(self, topic: str | None = None, *, progress: Progress | None = None) -> Iterator[dict[str, Any]]:
        """Topics with the sums over their queues, as rows of `rmqctl ls --json`; counted from the commitlog, as
        `source` says, where `has_queue_files` is false. NotFoundError for an unknown topic."""
        from rmqctl.store.info.summary import topic_rows, topic_rows_from_log

        if self.has_queue_files() or not self.files.log.files:
            return topic_rows(self.reader, topic)
        return topic_rows_from_log(self.files, topic, progress)

    def has_queue_files(self) -> bool:
        """Whether there are consume queues that can be read: neither lost nor in a RocksDB."""
        from rmqctl.store.info.summary import has_queue_files

        return has_queue_files(self.files)

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> Iterator[dict[str, Any]]:
        """Queues with their offsets, as rows of `rmqctl ls --queues --json`. NotFoundError for an unknown topic or
        queue, UnsupportedError for queues in a RocksDB."""
        from rmqctl.store.info.summary import queue_rows

        return queue_rows(self.reader, topic, queue_id)

    def list_files(self) -> Iterator[dict[str, Any]]:
        """Every file by what it is, as rows of `rmqctl ls --files --json`. RefusedError while it is open for writing:
        to look into `lock` would give the lock away."""
        from rmqctl.store.info.summary import file_rows

        return file_rows(self._files_at_rest())

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
        from rmqctl.store.files.sparse_copy import Sharing
        from rmqctl.store.installed import version
        from rmqctl.store.snapshot.snapshot import take_snapshot

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

        refuse_own_lock(Path(path))
        return dump_file(Path(path), at=at, raw=raw)

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


def _selection(criteria: Criteria | None, begin: int, end: int | None) -> Selection:
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import Selection

    return Selection(criteria or Criteria(), begin, end)
