"""The follower: walks the log behind the append position and dispatches every message to queues and index."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError, DiskFullError, RefusedError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.store import native
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.background import Background, Failure
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.log.append import LogFlusher
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.implied import Digest, Run, route
from rmqctl.store.log.walk import Blank, Damage, Empty
from rmqctl.store.options import ChangeOptions, notice
from rmqctl.store.queues.dispatch import index_keys, queue_slots
from rmqctl.store.queues.queue_table import QueueFlusher
from rmqctl.store.store_files import Checkpoint, StoreFiles, read_checkpoint, write_checkpoint
from rmqctl.store.write.appenders import IndexBatches, NewEntries, QueueAppender

if TYPE_CHECKING:
    from rmqctl.store.clean.cleaner import Cleaner, CleanReport
    from rmqctl.store.clean.options import CleanOptions


# Whether an open store takes messages, and what went wrong if it no longer does (RunningFlags).


class RunningState:
    """Open, closed, or failed for good. The first failure is kept: it is the one that says why."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.is_closed = False
        self.failure: BaseException | None = None

    @property
    def is_writeable(self) -> bool:
        """Whether messages may be put."""
        return self.failure is None and not self.is_closed

    def on_failure(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the store fails, so that no caller waits forever."""
        self._listeners.append(listener)

    def fail(self, error: BaseException) -> None:
        """Make the store non-writeable until it is opened again: after an error of a background service or of an fsync,
        what is on disk is unknown."""
        with self._lock:
            if self.failure is None:
                self.failure = error
        for listener in self._listeners:
            listener()

    def raise_failure(self) -> None:
        """Raise the error that ended the store's work, if any."""
        if self.failure is not None:
            raise self.failure


_CHUNK = 256 * 1024
# whoever brings work wakes the thread: looking more often would only cost an idle broker something
_INTERVAL_MS = 250
# While messages come, the log is looked at this often and not for every message. A message waits so long at most: with
# 10 ms dispatch takes less processor time, but a consumer waits longer.
_LINGER_MS = 2
# So many bytes are taken as columns at once; fewer messages than these are not worth it, and neither are columns in a
# process that writes little (bytes): what they are made with takes half a second to load.
_COLUMNS_AT_ONCE = 8 * 1024 * 1024
_COLUMNS_FROM = 8
_COLUMNS_AFTER = 512 * 1024
_NEVER = 1 << 63


class Follower:
    """RocketMQ's ReputMessageService: follows the log and dispatches its messages, up to `readable_end`, to queues and
    index.

    `position`: physical offset up to which everything is dispatched. `last_timestamp` (ms) and `last_offset`: store
    time and start of the last dispatched message. An error makes the store non-writeable: a queue unit that was not
    written cannot be made up for by later ones.
    """

    def __init__(
        self,
        files: StoreFiles,
        position: int,
        readable_end: Callable[[], int],
        queue_flusher: QueueFlusher,
        state: RunningState,
        is_batch_topic: Callable[[str], bool],
    ) -> None:
        self.position = position
        self.last_timestamp = 0
        self.last_offset = -1
        self.index_timestamp = 0
        self._files = files
        self._config: StoreConfig = files.config
        self._delay_levels = files.config.delay_levels_to_write()
        # decided before the first message of this writer is in the index
        self._with_tags = files.config.writes_index_files and files.has_tag_entries
        self._readable_end = readable_end
        self._state = state
        has_ext = files.config.enable_consume_queue_ext
        self._queues = QueueAppender(files.queues, queue_flusher, is_batch_topic, has_ext=has_ext)
        self._columns: ColumnDispatch | None = None
        # columns make no ext units
        self._columns_from = _NEVER if has_ext else position + _COLUMNS_AFTER
        # bytes of a message, going by those that were dispatched last: how many wait is not known before they are read
        self._usual_size = 0.0
        self._condition = threading.Condition()
        # called, in this thread, after messages were dispatched
        self.on_dispatched: Callable[[], None] = lambda: None
        # told, in our thread, of queues that got messages
        self.arrivals: Callable[[Set[tuple[str, int]]], None] | None = None
        self.thread = Background("reput", self.dispatch_all, _INTERVAL_MS, state.fail, linger_ms=_LINGER_MS)
        state.on_failure(self._notify)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def stop(self) -> None:
        """Stop the thread where it is."""
        self.thread.stop()

    def wake(self) -> None:
        """There may be more to dispatch."""
        if self.thread.is_idle:
            self.thread.wake()

    def wait_for(self, offset: int, timeout: float | None = None) -> bool:
        """Wait until everything before `offset` is dispatched; False after `timeout` seconds or if the store failed."""
        if self.position >= offset:
            return True
        self.thread.wake()
        with self._condition:
            self._condition.wait_for(lambda: self.position >= offset or self._state.failure is not None, timeout)
        return self.position >= offset

    def dispatch_all(self) -> bool:
        """Dispatch everything readable now; return whether there was anything. One thread at a time.

        What comes meanwhile is left to the next call: a few messages by themselves cost as much as many together.
        """
        found, end = False, self._readable_end()
        while self.position < end and self._dispatch_some():
            found = True
            self._notify()
            self.on_dispatched()
            arrived = self._queues.take_arrived()
            if self.arrivals is not None and arrived:
                self.arrivals(arrived)
        return found

    def _dispatch_some(self) -> bool:
        """Dispatch some of what is readable; whether there was anything."""
        end = self._readable_end()
        if end - self.position < _COLUMNS_FROM * self._usual_size or self.position < self._columns_from:
            return self._dispatch_chunk(end)
        if self._columns is None:
            if not native.is_compiled():
                self._columns_from = _NEVER
                return self._dispatch_chunk(end)
            self._columns = ColumnDispatch(self._files, self._queues)
        start = self.position
        for reached in self._columns.dispatch(start, min(end, self.position + _COLUMNS_AT_ONCE)):
            self.index_timestamp = reached.index_timestamp or self.index_timestamp
            if reached.messages:
                self.last_offset, self.last_timestamp = reached.last_offset, reached.last_timestamp
                self._usual_size = (reached.position - self.position) / reached.messages
            self.position = reached.position
        return self.position > start

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _dispatch_chunk(self, end: int) -> bool:
        """Dispatch some messages before `end`, one by one; whether there was anything."""
        file = self._files.log.find(self.position) if self.position < end else None
        if file is None:
            return False
        start = self.position
        data = file.read(start - file.start_offset, min(_CHUNK, end - start))
        messages: list[StoredMessage] = []
        at, reached = 0, start
        try:
            while at + BLANK_FRAME.size <= len(data):
                size, magic = BLANK_FRAME.unpack_from(data, at)
                if magic == BLANK_MAGIC:
                    reached = file.end_offset
                    break
                if at + size > len(data):
                    if at or len(data) < min(_CHUNK, end - start):
                        break
                    data = file.read(start - file.start_offset, size)
                messages.append(self._decode(file, data, at, start + at))
                at += size
                reached = start + at
        finally:
            # those before one that is damaged, too
            self._dispatch(messages)
            self.position = reached
        return reached > start

    def _decode(self, file: MappedFile, data: bytes, at: int, physical_offset: int) -> StoredMessage:
        try:
            return decode_message(data, at, file.end_offset - physical_offset, physical_offset, check_crc=False)
        except FrameDamage as damage:
            raise CorruptError(
                f"what was just appended reads back damaged: {damage.detail}",
                file=file.path,
                physical_offset=physical_offset,
                hint="another process or the disk has changed the file; run `rmqctl recover`",
            ) from damage

    def _dispatch(self, messages: list[StoredMessage]) -> None:
        for message in messages:
            is_batch = self._queues.is_batch_topic(message.topic, message.queue_id)
            for slot in queue_slots(message, self._delay_levels, is_batch):
                if self._config.fills_light_queues or not slot.is_further:
                    self._queues.add_with_ext(slot, message.store_timestamp)
        if self._config.writes_index_files:
            with_tags = self._with_tags
            self._put_keys([(one, key) for one in messages for key in index_keys(one, with_tags=with_tags)])
        if messages:
            self.last_offset, self.last_timestamp = messages[-1].physical_offset, messages[-1].store_timestamp
            self._usual_size = sum(message.total_size for message in messages) / len(messages)

    def _put_keys(self, keys: list[tuple[StoredMessage, str]]) -> None:
        index, full_timestamp = self._files.index, 0
        if self._columns is not None and keys:
            # the slots of the file are open there
            full_timestamp = self._columns.put_keys(keys)
        elif self._columns is None:
            for message, key in keys:
                if index.put(message.topic, key, message.physical_offset, message.store_timestamp):
                    full_timestamp = message.store_timestamp
                    index.files[-1].close()
        # of a full file: its times may go to the checkpoint, because it is on disk
        self.index_timestamp = full_timestamp or self.index_timestamp

    def release(self) -> None:
        """Close what is open without flushing; for a store that failed."""
        self._queues.release()
        self.close_index()
        self._files.index.release()

    def close_index(self) -> None:
        """Let go of the index's slots; before its files are closed."""
        if self._columns is not None:
            self._columns.close()


# Dispatches what was appended as columns: whole runs of queue units and index entries instead of single messages.
#
# `Follower._dispatch` does it message by message.

# what was just written is not checked against its CRC again
_NO_CRC = 1 << 62


class Reached(NamedTuple):
    """How far the dispatch is, and how many messages further: physical offsets (-1: no message), times in ms (0: none).

    `index_timestamp`: of the last entry of an index file that became full.
    """

    position: int
    last_offset: int = -1
    last_timestamp: int = 0
    index_timestamp: int = 0
    messages: int = 0


class ColumnDispatch:
    """Used by the follower's thread only."""

    def __init__(self, files: StoreFiles, queues: QueueAppender) -> None:
        config = files.config
        self._files = files
        self._queues = queues
        self._delay_levels = config.delay_levels_to_write()
        keys = config.writes_index_files
        self._digest = Digest(self._delay_levels, keys=keys, tags=keys and files.has_tag_entries, refuses=False)
        self._index = IndexBatches(files.index)

    def dispatch(self, begin: int, end: int) -> Iterator[Reached]:
        """Dispatch the records that start in [begin, end), all of them readable; CorruptError where none is."""
        log, digest = self._files.log, self._digest
        records = walk_columns(log, begin, end, crc_from=_NO_CRC, columns=digest.columns, topics=digest.topics)
        for record in digest.runs(records):
            if isinstance(record, Run):
                yield self._dispatch_run(record)
            elif isinstance(record, Blank):
                yield Reached(record.end)
            else:
                raise _damaged(record)

    def _dispatch_run(self, run: Run) -> Reached:
        with_light = self._files.config.fills_light_queues
        route(run, self._files.log, self._delay_levels, self._queues, with_light=with_light)
        entries = NewEntries(run.key_hashes, run.key_offsets, run.key_timestamps)
        full_timestamp = self._index.put(entries)
        return Reached(run.end, run.last_message_offset, run.last_store_timestamp, full_timestamp, run.messages)

    def put_keys(self, keys: Sequence[tuple[StoredMessage, str]]) -> int:
        """Add index entries of messages; the store time (ms) of the last message that filled a file, 0 if none did."""
        hashes = np.array([key_hash(message.topic, key) for message, key in keys], np.int32)
        offsets = np.array([message.physical_offset for message, _ in keys], np.int64)
        timestamps = np.array([message.store_timestamp for message, _ in keys], np.int64)
        return self._index.put(NewEntries(hashes, offsets, timestamps))

    def close(self) -> None:
        """Let go of the index file that entries were put to."""
        self._index.close()


def _damaged(record: Empty | Damage) -> CorruptError:
    detail = record.detail if isinstance(record, Damage) else "there are zeros"
    return CorruptError(
        f"what was just appended reads back damaged: {detail}",
        physical_offset=record.physical_offset,
        hint="another process or the disk has changed the file; run `rmqctl recover`",
    )


# The thread that flushes consume queues and keeps the checkpoint behind them (FlushConsumeQueueService).

# Keeps the checkpoint file of a store that is being written (StoreCheckpoint).


class CheckpointKeeper:
    """The checkpoint's values, and the file they are written to when they changed.

    Unlike RocketMQ's, a time gets in here only after what it speaks of was fsynced.
    """

    def __init__(self, path: Path, *, keeps_logics_offset: bool = False) -> None:
        """`keeps_logics_offset`: see StoreFiles; else it stays as it is."""
        self._path = path
        self._keeps_logics_offset = keeps_logics_offset
        self._lock = threading.Lock()
        self._on_disk = read_checkpoint(path)
        self._values = self._on_disk or Checkpoint()
        # (time, physical offset) of the oldest and the last message that went back in time, until they are covered
        self._ceiling: tuple[int, int] | None = None

    @property
    def values(self) -> Checkpoint:
        """What the next `write` writes."""
        return self._values

    def set(
        self,
        *,
        physic: int = 0,
        logics: int = 0,
        index: int = 0,
        confirm: int | None = None,
        logics_offset: int | None = None,
        covered_to: int = 0,
    ) -> None:
        """Note times (ms; 0 for no news), the start of the last valid message, and that of the last message whose unit
        and frame are on disk. Not written yet.

        `covered_to`: physical offset up to which log and queues are known to be on disk.
        """
        if not self._keeps_logics_offset:
            logics_offset = None
        with self._lock:
            if self._ceiling is not None:
                timestamp, offset = self._ceiling
                if covered_to > offset:
                    self._ceiling = None
                else:
                    physic, logics = min(physic, timestamp), min(logics, timestamp)
            values = self._values
            self._values = values._replace(
                physic_msg_timestamp=physic or values.physic_msg_timestamp,
                logics_msg_timestamp=logics or values.logics_msg_timestamp,
                index_msg_timestamp=index or values.index_msg_timestamp,
                confirm_physical_offset=values.confirm_physical_offset if confirm is None else confirm,
                logics_physical_offset=values.logics_physical_offset if logics_offset is None else logics_offset,
            )

    def lower(self, timestamp: int, physical_offset: int) -> None:
        """Before a message is stored whose time (ms) is earlier than that of previous ones: keep the file on disk from
        calling it flushed, now or too early. A recovery trusts that times only grow."""
        with self._lock:
            before = self._ceiling
            self._ceiling = (timestamp if before is None else min(timestamp, before[0]), physical_offset)
            values = self._values
            self._values = values._replace(
                physic_msg_timestamp=min(values.physic_msg_timestamp, timestamp),
                logics_msg_timestamp=min(values.logics_msg_timestamp, timestamp),
            )
        self.write()

    def write(self) -> None:
        """Write the file if anything changed; durable when this returns."""
        with self._lock:
            if self._values != self._on_disk:
                write_checkpoint(self._path, self._values)
                self._on_disk = self._values


class QueueFlushService:
    """Every flushIntervalConsumeQueue ms: queues first, then the checkpoint that says so (FlushConsumeQueueService)."""

    def __init__(
        self,
        intervals_ms: tuple[int, int],
        queue_flusher: QueueFlusher,
        log_flusher: LogFlusher,
        follower: Follower,
        checkpoint: CheckpointKeeper,
        on_failure: Failure,
    ) -> None:
        """`intervals_ms`: flushIntervalConsumeQueue, flushConsumeQueueThoroughInterval."""
        self._thorough_ms = intervals_ms[1]
        self._queue_flusher = queue_flusher
        self._log_flusher = log_flusher
        self._follower = follower
        self._checkpoint = checkpoint
        self._last_thorough = time.monotonic()
        # start of the last message whose unit is on disk; -1: none of this writer's
        self._units_to = -1
        # what one flush has read must not be noted after what a later one has
        self._flushing = threading.Lock()
        self._thread = Background("flush-queues", self._step, intervals_ms[0], on_failure, is_timed=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; does not flush."""
        self._thread.stop()

    def _step(self) -> None:
        now = time.monotonic()
        is_thorough = (now - self._last_thorough) * 1000 >= self._thorough_ms
        if is_thorough:
            self._last_thorough = now
        self.flush_queues(is_thorough)
        # on a full disk an older checkpoint stays, which only makes a recovery read more; closing tries again, loudly
        with contextlib.suppress(DiskFullError):
            self._checkpoint.write()

    def flush(self) -> None:
        """Flush all queues, then write the checkpoint."""
        self.flush_queues(is_thorough=True)
        self._checkpoint.write()

    def flush_queues(self, is_thorough: bool = True) -> None:
        """Flush queues and note it for the checkpoint. Everything noted is read before the flush that makes it true."""
        with self._flushing:
            logics, last = self._follower.last_timestamp, self._follower.last_offset
            physic = self._log_flusher.flushed_timestamp
            covered = min(self._follower.position, self._log_flusher.flushed_offset)
            if not self._queue_flusher.flush(is_thorough):
                logics, covered = 0, 0
            elif last >= 0:
                self._units_to = last
            # the log is flushed at a pace of its own, and no unit counts before its message does
            is_on_disk = 0 <= self._units_to < self._log_flusher.flushed_offset
            index = self._follower.index_timestamp
            self._checkpoint.set(
                physic=physic,
                logics=logics,
                index=index,
                logics_offset=self._units_to if is_on_disk else None,
                covered_to=covered,
            )


# Removes expired files of a store that is open for writing: when asked to, or by itself (CleanCommitLogService).


class CleanService:
    """`clean` once, or from `start` on every cleanResourceInterval ms by the broker's rules, the first time after one
    interval. What is not on disk or not dispatched yet stays in any case.

    (DefaultMessageStore#addScheduleTask, which waits for a minute first)
    """

    def __init__(
        self,
        files: StoreFiles,
        clock: Callable[[], int],
        settled_end: Callable[[], int],
        flush_queues: Callable[[], None],
        on_failure: Failure,
    ) -> None:
        """`clock`: ms since 1970. `settled_end`: before this physical offset the log is on disk and dispatched."""
        self._files = files
        self._clock = clock
        self._settled_end = settled_end
        self._flush_queues = flush_queues
        self._scheduled: Cleaner | None = None
        # one cleaning at a time
        self._cleaning = threading.Lock()
        self._thread: Background | None = None
        self._on_failure = on_failure

    @property
    def is_started(self) -> bool:
        """Whether it cleans by itself."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread."""
        interval = max(1, self._files.config.clean_resource_interval)
        self._thread = Background("clean", self.step, interval, self._on_failure, is_timed=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the running cleaning to end; no other begins by itself."""
        if self._thread is not None:
            self._thread.stop()

    def step(self) -> CleanReport | None:
        """Run one scheduled cleaning; return None if it is unknown what may be deleted, which is reported once."""
        from rmqctl.store.clean.cleaner import Cleaner
        from rmqctl.store.clean.options import options_from_config

        # as they are now: they can be changed while the store is open
        options = replace(options_from_config(self._files.config), scheduled=True)
        if self._scheduled is None:
            self._scheduled = Cleaner(self._files, options)
        self._scheduled.options = options
        try:
            return self._run(self._scheduled)
        except RefusedError as error:
            notice(f"{error}: nothing is cleaned")
            return None

    def clean(self, options: CleanOptions | None, dry_run: bool) -> CleanReport:
        """Run one requested cleaning. RefusedError, WriteFailedError; see rmqctl.store.clean.clean."""
        from rmqctl.store.clean.cleaner import Cleaner, clean
        from rmqctl.store.clean.options import options_from_config

        options = options or options_from_config(self._files.config)
        if dry_run:
            return clean(self._files, options, now=self._clock(), change=ChangeOptions(dry_run=True))
        return self._run(Cleaner(self._files, options, sleep=lambda _: None))

    def _run(self, cleaner: Cleaner) -> CleanReport:
        from rmqctl.store.clean.cleaner import clean_locked

        with self._cleaning:
            settled = self._settled_end()
            # a queue file goes with the log it points into: nothing of it may be waiting for its flush then
            self._flush_queues()
            return clean_locked(cleaner, self._clock(), needed_from=settled)
