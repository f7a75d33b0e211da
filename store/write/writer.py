"""Everything that runs while a store is open for writing: started in order, stopped in order (DefaultMessageStore)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import LOCAL_HOST, Host, Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file import monotonic_ms
from rmqctl.store.files.mapped_file_queue import Allocator
from rmqctl.store.files.reading import named
from rmqctl.store.log.append import SYNC_FLUSH, DirectSink, FlushService, LogAppender, LogFlusher, Sink
from rmqctl.store.log.transient_pool import PooledSink, TransientStorePool, warming
from rmqctl.store.native.put import OrdinaryPuts, PutParts, PutState
from rmqctl.store.options import Events, WriteOptions
from rmqctl.store.queues.consumequeue import QueueKey
from rmqctl.store.queues.queue_table import QueueFlusher
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.checks import Headroom
from rmqctl.store.write.dispatch import CheckpointKeeper, CleanService, Follower, QueueFlushService, RunningState
from rmqctl.store.write.opening import OpenedStore, give_back, open_store_for_writing, unmark
from rmqctl.store.write.prepare import Preparation, TopicTypes, wants_durability
from rmqctl.store.write.put import (
    STORED,
    UNUSUAL_FLAGS,
    Known,
    OffsetTable,
    PendingPut,
    PutResult,
    PutServices,
    Putter,
    put_until_failure,
)

if TYPE_CHECKING:
    import pyarrow

    from rmqctl.store.clean.cleaner import CleanReport
    from rmqctl.store.clean.options import CleanOptions
    from rmqctl.store.write.bulk.bulk import BulkPuts, BulkRows, ColumnsResult
    from rmqctl.store.write.dispatch import CleanService

# so many messages at once, and in all, are worth what it takes to load the compiled way
_BULK_FROM = 64
_BULK_AFTER = 10_000


PutNew = Callable[[Message], PutResult]


def wall_clock() -> int:
    """Now, in ms since 1970."""
    return time.time_ns() // 1_000_000


def _sink(config: StoreConfig, file_size: int) -> Sink:
    """Return where the store's log is appended to: `file_size` is that of a commitlog file."""
    if not config.uses_transient_store_pool:
        return DirectSink()

    fails_fast = config.fast_fail_if_no_buffer_in_store_pool and not config.is_slave
    return PooledSink(TransientStorePool(config.transient_store_pool_size, file_size, fails_fast=fails_fast))


def _rows_of(given: pyarrow.RecordBatch | BulkRows, as_stored: bool) -> BulkRows:
    from rmqctl.store.write.bulk.bulk import BulkRows

    if isinstance(given, BulkRows):
        return given
    from rmqctl.store.scan.schema import require_pyarrow

    require_pyarrow()
    from rmqctl.store.write.bulk.arrow import rows_of_batch

    return rows_of_batch(given, as_stored)


class StoreWriter:
    """The services of a store that is open for writing, and the puts that use them."""

    def __init__(
        self,
        opened: OpenedStore,
        store_host: Host,
        clock: Callable[[], int] | None,
        *,
        allocate_ahead: bool,
        obey_disk_ratio: bool,
    ) -> None:
        """Wire and start everything. `clock`: ms since 1970; None for that of the system."""
        files, end = opened.files, opened.end
        config, log = files.config, files.log
        self._opened = opened
        store_host = store_host.as_written
        self._state = RunningState()
        topics = TopicTypes(files)
        sink = _sink(config, log.file_size)
        self._log_flusher = LogFlusher(log, end.end_offset)
        self._allocator = Allocator(
            log, allocate_ahead, self._log_flusher.flush_names, warming(config, config.flush_disk_type == SYNC_FLUSH)
        )
        self._appender = LogAppender(log, sink, self._allocator)
        self._flush = FlushService(self._log_flusher, sink, config, self._state.fail)
        self._queue_flusher = QueueFlusher(config.flush_consume_queue_least_pages)
        self._checkpoint = CheckpointKeeper(files.layout.checkpoint, keeps_logics_offset=files.keeps_logics_offset())
        self._follower = Follower(
            files, end.end_offset, self._readable_end, self._queue_flusher, self._state, topics.is_batch
        )
        self._queue_flush = QueueFlushService(
            (config.flush_interval_consume_queue, config.flush_consume_queue_thorough_interval),
            self._queue_flusher,
            self._log_flusher,
            self._follower,
            self._checkpoint,
            self._state.fail,
        )
        offsets = OffsetTable()
        offsets.load(files.queues.all())
        most_used = config.disk_space_warning_level_ratio if obey_disk_ratio else None
        self._puts = PutState(end.last_timestamp)
        self._known = known = Known(config, store_host)
        self._store_host = store_host
        self._clock = clock or wall_clock
        self._bulk: BulkPuts | None = None
        self._put_many = 0
        self._clean: CleanService | None = None
        self._services = services = PutServices(
            config,
            self._state,
            Preparation(files, store_host, topics),
            self._appender,
            offsets,
            Headroom(files.root, self._wait_for, most_used),
            self._flush,
            self._checkpoint,
            self._puts,
            known,
            self._flush.wake_commit if self._flush.commits_later else self._follower.wake,
        )
        self._putter = Putter(services, log.file_size, self._clock)
        self._ordinary = self._ordinary_puts(clock)
        self.put: PutNew = self._put_and_wait if self._flush.is_sync else self._ordinary.put
        self._flush.listener = self._follower.wake
        # a commit of the pool wakes the flush in any case (CommitRealTimeService)
        if not self._flush.is_sync and (config.wake_flush_when_put_message or self._flush.commits_later):
            self._follower.on_dispatched = self._flush.wake
        self._flush.start()
        self._follower.start()
        self._queue_flush.start()

    def _ordinary_puts(self, clock: Callable[[], int] | None) -> OrdinaryPuts:
        """The fast path, which leaves other messages to the slow one. With SYNC_FLUSH who puts fast has to wait by
        himself, and what is put is flushed before it is followed."""
        known, puts = self._known, self._puts
        busy_after = self.files.config.os_page_cache_busy_time_out_mills

        def is_busy() -> bool:
            begin = puts.begin_in_lock
            return begin is not None and monotonic_ms() - begin > busy_after

        return OrdinaryPuts(
            PutParts(
                known.topics, known.names, known.learn_names, puts, is_busy, io, clock,
                self._flush.thread if self._flush.is_sync else self._follower.thread, self._putter.put,
                known.store_host, known.largest_body, UNUSUAL_FLAGS, PutResult, STORED,
            )
        )  # fmt: skip

    def _put_and_wait(self, message: Message) -> PutResult:
        return self._putter.put(message, False)

    def put_copy(self, message: Message) -> PutResult:
        """Put a message as stored; see MessageStore.put."""
        return self._putter.put(message, True)

    @property
    def files(self) -> StoreFiles:
        """The store's files, as they grow."""
        return self._opened.files

    @property
    def _is_hurried(self) -> bool:
        """Whether there is a fast path, and every put may take it."""
        return self._known.is_possible and not self._flush.is_sync

    def _readable_end(self) -> int:
        """Up to where messages may be dispatched: with SYNC_FLUSH what is on disk (CommitLog#getConfirmOffset of 5.3;
        4.x and 5.5 hand out what a crash may still take)."""
        return self._log_flusher.flushed_offset if self._flush.is_sync else self._opened.files.log.max_offset

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that were written and are not yet flushed to disk."""
        return max(0, self._opened.files.log.max_offset - self._log_flusher.flushed_offset)

    def _wait_for(self, offset: int) -> None:
        self._follower.wait_for(offset)

    def check(self, message: Message, as_stored: bool) -> PutResult | None:
        """See MessageStore.check_message."""
        return self._putter.check(message, as_stored)

    def advance_queue(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """See MessageStore.advance_queue."""
        with self._puts.lock:
            entry = self._services.offsets.entry((topic, queue_id))
            if queue_offset < entry.value:
                raise RefusedError(f"queue {topic}/{queue_id} is at {entry.value} already, behind {queue_offset}")
            entry.value = queue_offset

    def put_at_once(self, messages: Sequence[Message], is_batch: bool) -> PendingPut:
        """See MessageStore.put_at_once."""
        if self._is_hurried and not is_batch:
            return PendingPut(list(map(self.put, messages)))
        if self._known.is_possible and not is_batch and len(messages) == 1:
            result: PutResult | None = self._ordinary.put_if_ordinary(messages[0])
            if result is not None:
                is_waiting = wants_durability(messages[0].properties)
                return PendingPut([result], self._appender.end_offset if is_waiting else 0)
        return self._putter.put_at_once(messages, is_batch)

    def tell_when_on_disk(self, offset: int, told: Callable[[], None]) -> None:
        """See MessageStore.tell_when_on_disk."""
        self._flush.tell_when_flushed(offset, told)

    def tell_arrivals(self, told: Callable[[Set[QueueKey]], None]) -> None:
        """See MessageStore.tell_arrivals."""
        self._follower.arrivals = told

    def put_many(self, messages: Sequence[Message], as_stored: bool, is_batch: bool) -> Sequence[PutResult]:
        """See MessageStore.put_many."""
        if is_batch or not self._is_hurried:
            return self._putter.put_many(messages, as_stored, is_batch)
        self._put_many += len(messages)
        if len(messages) >= _BULK_FROM and self._put_many >= _BULK_AFTER:
            rows = self._rows(messages, as_stored)
            if rows is not None:
                return self._bulk_puts().put(rows).results(self._store_host)
        return put_until_failure(messages, self.put_copy if as_stored else self.put)

    def put_columns(self, batch: pyarrow.RecordBatch | BulkRows, as_stored: bool) -> ColumnsResult:
        """See MessageStore.put_columns."""
        from rmqctl.store.write.bulk.bulk import put_one_by_one

        rows = _rows_of(batch, as_stored)
        if self._is_hurried:
            return self._bulk_puts().put(rows)
        return put_one_by_one(rows, lambda messages: self.put_many(messages, as_stored, is_batch=False))

    def check_many(self, messages: Sequence[Message], as_stored: bool) -> dict[int, str]:
        """See MessageStore.check_many."""
        from rmqctl.store.write.bulk.bulk import refused_messages, rows_of_messages

        rows = None
        # where fields have other types than a message has, the check of each one says so
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            if len(messages) >= _BULK_FROM:
                rows = rows_of_messages(messages, self._known, as_stored)
        if rows is not None:
            return self._refused_rows(rows, set())
        return refused_messages(range(len(messages)), messages.__getitem__, lambda one: self.check(one, as_stored))

    def check_columns(
        self, batch: pyarrow.RecordBatch | BulkRows, as_stored: bool, accepted: set[str] | None
    ) -> dict[int, str]:
        """See MessageStore.check_columns."""
        return self._refused_rows(_rows_of(batch, as_stored), set() if accepted is None else accepted)

    def _refused_rows(self, rows: BulkRows, accepted: set[str]) -> dict[int, str]:
        from rmqctl.store.write.bulk.bulk import refused_rows

        if self._known.is_possible:
            rows.judge(self._opened.files.config.max_message_size, self._opened.files.log.file_size)
        else:
            rows.usual[:] = False
        return refused_rows(rows, lambda message: self.check(message, rows.is_copy), accepted)

    def _rows(self, messages: Sequence[Message], as_stored: bool) -> BulkRows | None:
        """Rows of some messages for `_bulk_puts`; None where only the slow path can tell what is wrong with them."""
        from rmqctl.store.write.bulk.bulk import rows_of_messages, rows_of_new_messages

        try:
            # a list begins as it goes on: copies, or messages with properties in stored form
            if as_stored or messages[0].property_bytes is not None:
                return rows_of_messages(messages, self._known, as_stored)
            return rows_of_new_messages(messages, self._ordinary)
        except (AttributeError, TypeError, ValueError):
            return None  # fields of other types than a message has

    def _bulk_puts(self) -> BulkPuts:
        """Puts of many rows at once, which needs NumPy."""
        if self._bulk is None:
            from rmqctl.store.write.bulk.bulk import BulkPuts

            file_size = self._opened.files.log.file_size
            self._bulk = BulkPuts(self._services, file_size, self._clock, self.put, self.put_copy)
        return self._bulk

    def is_dispatched(self, end: int) -> bool:
        """Return whether queues and index hold everything before this physical offset."""
        return self._follower.position >= end

    def wait_for_dispatch(self) -> None:
        """Wait until queues and index hold everything put so far; raises the error that prevents it."""
        end = self._appender.end_offset
        if self._follower.position < end and (self._flush.is_sync or self._opened.files.log.max_offset < end):
            self._flush.flush_now()
        self._follower.wait_for(end)
        self._state.raise_failure()

    def flush(self) -> None:
        """Bring log, queues, index and checkpoint to disk; raises the error that prevents it."""
        self._state.raise_failure()
        self._flush.flush_now()
        self.wait_for_dispatch()
        # by name: the follower closes a file that becomes full, and has flushed it then
        for file in self._opened.files.index.files[-1:]:
            io.flush_file(file.path)
        self._queue_flush.flush()

    def clean(self, options: CleanOptions | None, dry_run: bool) -> CleanReport:
        """See MessageStore.clean."""
        self.flush()
        return self._cleaning().clean(options, dry_run)

    def start_cleaning(self) -> None:
        """Have expired files removed from now on."""
        self._cleaning().start()

    @property
    def is_cleaning(self) -> bool:
        """Whether expired files are removed by themselves."""
        return self._clean is not None and self._clean.is_started

    def _cleaning(self) -> CleanService:
        if self._clean is None:
            self._clean = CleanService(
                self._opened.files, self._clock, self._settled_end, self._queue_flush.flush_queues, self._state.fail
            )
        return self._clean

    def _settled_end(self) -> int:
        """Before this physical offset the log is on disk, and in queues and index."""
        return min(self._log_flusher.flushed_offset, self._follower.position)

    def close(self) -> None:
        """Stop everything. A store without a failure is left clean; else `abort` stays and the failure is raised."""
        if self._state.is_closed:
            return
        self._state.is_closed = True
        try:
            self._putter.finish()
            self._finish()
        finally:
            self._stop()

    def _finish(self) -> None:
        """Dispatch and flush what is left, write the checkpoint, remove `abort`."""
        self.flush()
        self._stop_services()
        files = self._opened.files
        files.queues.close()
        self._follower.close_index()
        files.index.close()
        if self._follower.last_offset >= 0:
            self._checkpoint.set(confirm=self._follower.last_offset)
            self._checkpoint.write()
        self._allocator.close()
        # nothing may have gone wrong behind our back until here
        self._state.raise_failure()
        unmark(files.layout)

    def _stop_services(self) -> None:
        if self._clean is not None:
            self._clean.stop()
        self._queue_flush.stop()
        self._follower.stop()
        self._flush.stop()

    def _stop(self) -> None:
        """Release everything, in any state, without another fsync. The lock comes last."""
        self._stop_services()
        files = self._opened.files
        try:
            self._allocator.close()
            self._follower.release()
            files.log.close()
            files.close()
        finally:
            self._opened.lock.release()


# A store opened for writing, with everything that runs while it is: what MessageStore and salvage write through.


def open_writer(root: Path, config: StoreConfig | None = None, **options: Unpack[WriteOptions]) -> StoreWriter:
    """The writer of the store at `root`, to be closed at the end; see MessageStore.open for the errors."""
    create, is_full = options.get("create", False), options.get("full_check", False)
    opened = open_store_for_writing(
        root, config, create=create, is_full_check=is_full, events=Events(progress=options.get("progress"))
    )
    host = options.get("store_host") or opened.end.last_store_host or LOCAL_HOST
    try:
        with named(root):
            writer = StoreWriter(
                opened,
                host,
                options.get("clock"),
                allocate_ahead=options.get("allocate_ahead", True),
                obey_disk_ratio=options.get("obey_disk_ratio", False),
            )
    except BaseException:
        give_back(opened)
        raise
    if options.get("clean_expired"):
        writer.start_cleaning()
    return writer
