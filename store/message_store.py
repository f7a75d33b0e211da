"""The store as a library: one class that wires the parts together (design: as a library)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqctl.formats.errors import RefusedError, UsageError
from rmqctl.formats.hosts import LOCAL_HOST, Host
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.config import StoreConfig
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.fast.ordinary import wall_clock
from rmqctl.store.write.result import PutResult

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rmqctl.store.check.check import CheckRun
    from rmqctl.store.check.cross import Level
    from rmqctl.store.clean import CleanOptions, CleanReport
    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.queues.offset_by_time import Boundary
    from rmqctl.store.read.get import GetResult
    from rmqctl.store.read.key_query import QueryResult
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import OnDamage
    from rmqctl.store.rebuild import RebuildReport
    from rmqctl.store.recover.recover import RecoverReport
    from rmqctl.store.write.bulk.bulk_result import ColumnsResult
    from rmqctl.store.write.writer import StoreWriter

Mode = Literal["r", "rw"]


class MessageStore:
    """One RocketMQ store, open for reading (`r`) or for reading and writing (`rw`). A context manager.

    Reading changes nothing and works beside a running broker and on a damaged store. Writing excludes brokers and every
    other writer. What was put can be read once it is dispatched: see `flush`.
    """

    def __init__(self, files: StoreFiles, writer: StoreWriter | None) -> None:
        """Use `open`."""
        self.files = files
        self.reader = StoreReader(files)
        self._writer = writer
        self._put = None if writer is None else writer.put

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: Mode = "r",
        config: StoreConfig | None = None,
        *,
        create: bool = False,
        full_check: bool = False,
        allocate_ahead: bool = True,
        obey_disk_ratio: bool = False,
        clean_expired: bool = False,
        store_host: Host | None = None,
        clock: Callable[[], int] = wall_clock,
        progress: Progress | None = None,
    ) -> MessageStore:
        """The store at `path`. NotAStoreError, UnreadableError; for `rw` also StoreInUseError, RefusedError,
        UnsupportedError and WriteFailedError (see `write.opening.open_for_writing`): opening never repairs.

        The rest is for `rw`. `create`: make a missing or empty directory a new store. `full_check`: check the CRCs of
        the whole log, not of its last three files. `allocate_ahead`: let a thread create the next commitlog file early.
        `obey_disk_ratio`: refuse puts from diskSpaceWarningLevelRatio on, as a broker does. `clean_expired`: remove
        expired files every cleanResourceInterval (10 s) by the broker's rules, which take young files too from a disk
        that is nearly full; off unless asked for, as a library deletes nothing by itself. `store_host`: what messages
        get as their store host; that of the last message if None, 127.0.0.1:10911 in an empty store. `clock`: ms.
        """
        root = Path(path)
        if mode == "r":
            return cls(StoreFiles(root, config), None)
        if mode != "rw":
            raise UsageError(f"mode {mode!r} is neither 'r' nor 'rw'")
        from rmqctl.store.write.opening.open_for_writing import open_for_writing
        from rmqctl.store.write.writer import StoreWriter

        opened = open_for_writing(root, config, create=create, is_full_check=full_check, progress=progress)
        host = store_host or opened.end.last_store_host or LOCAL_HOST
        writer = StoreWriter(opened, host, clock, allocate_ahead=allocate_ahead, obey_disk_ratio=obey_disk_ratio)
        if clean_expired:
            writer.start_cleaning()
        return cls(opened.files, writer)

    # ---- writing

    @property
    def _writing(self) -> StoreWriter:
        if self._writer is None:
            raise RefusedError(
                "the store is open for reading only", file=self.files.root, hint="open it with mode='rw'"
            )
        return self._writer

    def put(self, message: Message, *, as_stored: bool = False) -> PutResult:
        """Put one message; with SYNC_FLUSH it returns when the message is on disk, or after syncFlushTimeout.

        The status says how it ended; nothing of a message that is not stored is ever visible. WriteFailedError for an
        I/O error (a full disk included) and UsageError for values that no frame can hold.

        `as_stored`: a copy of a stored message that keeps its store time and host and its properties byte for byte;
        only what its place in this store decides is made anew: queue and physical offset, and properties with those.
        """
        put = self._put or self._writing.put
        return put(message, as_stored)

    def put_many(
        self, messages: Sequence[Message], *, batch: bool = False, as_stored: bool = False
    ) -> Sequence[PutResult]:
        """Put messages one after the other, waiting for the disk once; results in their order.

        `batch`: as one classic batch of one topic and queue, in one file, all of them or none. Otherwise an exception
        (see `put`) leaves the messages before it stored; and so does a status that is no judgement on the message, such
        as DISK_FULL: all messages behind it have it too, untried. `PutResult.raise_failure` makes an error of it.
        """
        return self._writing.put_many(messages, as_stored, batch)

    def put_columns(self, batch: RecordBatch, *, as_stored: bool = False) -> ColumnsResult:
        """Put the messages of an Arrow batch one after the other: as if each was put by itself, many times faster.

        The columns are those of `scan` as far as a producer sets them, with `as_stored` store time and host too, of
        which `topic` and `body` must be there. UsageError for other columns and values that no column can hold, before
        anything is stored; else as `put_many`, and no faster where flushes are synchronous or nothing is compiled.
        """
        from rmqctl.store.scan.schema import require_pyarrow

        require_pyarrow()
        return self._writing.put_columns(batch, as_stored)

    def check_message(self, message: Message, *, as_stored: bool = False) -> PutResult | None:
        """How a put of `message` would be refused, None if nothing speaks against it. Stores nothing."""
        return self._writing.check(message, as_stored)

    def check_many(self, messages: Sequence[Message], *, as_stored: bool = False) -> dict[int, str]:
        """Why messages would be refused, by their place in `messages`; {} if nothing speaks against any of them now.

        What `check_message` raises is a reason here. Stores nothing. WriteFailedError where no message is refused, but
        the store takes none.
        """
        return self._writing.check_many(messages, as_stored)

    def check_columns(self, batch: RecordBatch, *, as_stored: bool = False) -> dict[int, str]:
        """The same for the rows of an Arrow batch. UsageError where `put_columns` raises it for the whole batch."""
        from rmqctl.store.scan.schema import require_pyarrow

        require_pyarrow()
        return self._writing.check_columns(batch, as_stored)

    def advance_queue(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Give the next message of a queue this offset, for copies that keep theirs. RefusedError for one that lies
        before the queue's end. Slots that are left out get what a broker writes into them: units that point nowhere.
        """
        self._writing.advance_queue(topic, queue_id, queue_offset)

    def flush(self) -> None:
        """Wait until everything put so far is on disk and can be read by queue and key; raises what went wrong."""
        self._writing.flush()

    def wait_for_dispatch(self) -> None:
        """Wait until everything put so far can be read by queue and key; raises what went wrong."""
        self._writing.wait_for_dispatch()

    # ---- reading

    def get(self, topic: str, queue_id: int, offset: int, limit: int = 32, tags: str | None = None) -> GetResult:
        """Messages of a queue from `offset` on; see StoreReader.get."""
        return self.reader.get(topic, queue_id, offset, limit, tags)

    def query(self, topic: str, key: str, begin: int = 0, end: int = (1 << 63) - 1, limit: int = 32) -> QueryResult:
        """Messages with a key, stored between `begin` and `end` (ms), newest first; see StoreReader.query."""
        return self.reader.query(topic, key, begin, end, limit)

    def lookup(self, message_id: str) -> StoredMessage:
        """The message that a broker's offset id names; NotFoundError, CorruptError, UsageError."""
        from rmqctl.store.read.lookup import lookup_offset_id

        return lookup_offset_id(self.files, message_id)

    def offset_at(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = "lower") -> int:
        """Queue offset for a time in ms; see StoreReader.offset_at."""
        return self.reader.offset_at(topic, queue_id, timestamp, boundary)

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
    ) -> Iterator[RecordBatch]:
        """Messages in the order they were stored as pyarrow.RecordBatch, with these columns (None: all, see
        rmqctl.store.scan.schema), of physical offsets [begin, end). A column that is not asked for costs nothing.

        `criteria`: only messages that meet them. `views`: bodies as `binary_view` over the memory they were read
        into; else as `binary`. Damage is told to `on_damage` and passed; without it the first is raised in its place.
        UnsupportedError without pyarrow, UsageError for a name of no column.
        """
        from rmqctl.store.scan.scan import Scan

        scan = Scan(self.files.log, columns, begin, end, criteria=criteria, views=views)
        return scan.batches(on_damage, progress)

    def check(self, level: Level | str = "default", *, fail_fast: bool = False) -> CheckRun:
        """Everything that is wrong with the store: iterate over the findings, then look at the `summary`; see
        rmqctl.store.check.check. Only while it is open for reading; another process may write to it."""
        from rmqctl.store.check.check import check

        return check(self._changeable(), level, fail_fast=fail_fast)

    # ---- changing

    def recover(self, *, cut: bool = False, full: bool = False, dry_run: bool = False) -> RecoverReport:
        """Recover the store; see rmqctl.store.recover.recover. Only while it is open for reading."""
        from rmqctl.store.recover.recover import recover

        report = recover(self._changeable(), cut=cut, full=full, dry_run=dry_run)
        self._reopen()
        return report

    def rebuild(
        self, *, queues: bool = True, index: bool = True, topics: list[str] | None = None, dry_run: bool = False
    ) -> RebuildReport:
        """Make queues and index anew; see rmqctl.store.rebuild. Only while it is open for reading."""
        from rmqctl.store.rebuild import rebuild

        report = rebuild(self._changeable(), queues=queues, index=index, topics=topics, dry_run=dry_run)
        self._reopen()
        return report

    def clean(self, options: CleanOptions | None = None, *, dry_run: bool = False) -> CleanReport:
        """Remove expired files for good; see `store/clean`. Messages that were put are flushed and dispatched first.

        A file that a reader of this store holds (an iterator that is in the middle of it) is refused: a later call
        removes it once it is released, or when destroyMapedFileIntervalForcibly (120 s) is over since the first one.
        Then the reader gets RemovedError.
        """
        if self._writer is not None:
            return self._writer.clean(options, dry_run)
        from rmqctl.store.clean import clean

        return clean(self.files, options, dry_run=dry_run)

    def _changeable(self) -> StoreFiles:
        if self._writer is not None:
            raise RefusedError(
                "the store is open for writing", file=self.files.root, hint="close it, and open it with mode='r'"
            )
        return self.files

    def _reopen(self) -> None:
        """The files changed under the objects that describe them."""
        old, self.files = self.files, StoreFiles(self.files.root, self.files.config)
        old.close()
        self.reader = StoreReader(self.files)

    # ---- the end

    def close(self) -> None:
        """Close. After writing: everything is dispatched, flushed and noted in the checkpoint, then `abort` is removed.

        If something of the store failed meanwhile, that is raised here and `abort` stays. Closing again does nothing.
        """
        if self._writer is not None:
            self._writer.close()
        else:
            self.files.close()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
