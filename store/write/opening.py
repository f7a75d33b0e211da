"""Opening a store for writing: its lock, the checks, the `abort` mark; or a new store (DefaultMessageStore#start)."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import NotAStoreError, RefusedError, RmqctlError, UnsupportedError, unreadable
from rmqctl.formats.message import Host, StoredMessage
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.compare.queues import are_led_to, has_batch_slot
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.files.mapped_file_queue import FileProblem, MappedFileQueue
from rmqctl.store.files.reading import exists, is_directory, is_there, named
from rmqctl.store.journal.log import refuse_unfinished, take_for_change
from rmqctl.store.log.implied import Digest, QueueRun, Run, consecutive, judged_runs, read_units, route
from rmqctl.store.log.survey import new_survey, start_after_clean_stop
from rmqctl.store.log.walk import Damage, Empty, message_if_any, walk, walked_message
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue, QueueUnit
from rmqctl.store.queues.dispatch import FurtherSlots, QueueSlot, highest_plausible, may_lack_further_slots, queue_slots
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues, rocksdb_error, superseding
from rmqctl.store.store_files import StoreFiles, refuse_dledger

# Whether the queues agree with the messages at the end of the log.

_BUFFERED_UNITS = 512


def refusal(message: str, root: Path, file: Path | str | None = None, offset: int | None = None) -> RefusedError:
    """The refusal to write to the store at `root`."""
    hint = f"run `rmqctl recover -s {shlex.quote(str(root))}` first"
    return RefusedError(message, file=file or root, physical_offset=offset, hint=hint)


def refuse_problems(problems: list[FileProblem], root: Path) -> None:
    """RefusedError if there is any."""
    for problem in problems:
        raise refusal(problem.detail, root, problem.path)


class _Differs(Exception):  # noqa: N818 - ends the fast way of a run, not the check
    """A queue does not hold what a run implies."""


class QueueEndCheck:
    """Holds the queues against the messages of the walk: every unit in its slot, and no unit without its message."""

    def __init__(self, files: StoreFiles, begin: int) -> None:
        self._files = files
        self._begin = begin
        self.delay_levels = files.config.delay_levels_to_write()
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._per_file = files.queues.consumequeue_file_size() // UNIT_SIZE
        self._with_light = files.config.fills_light_queues
        self._further = FurtherSlots(files.queues.find)
        # a topic that was removed has no queue, and needs none; so is one that was created again since
        self._is_earlier = functools.cache(lambda: KnownNames.of(files).earlier_life())
        self.batch_topics = {queue.topic for queue in files.queues.all() if queue.kind == "BatchCQ"}

    def check_run(self, run: Run) -> None:
        """RefusedError, that of the first message, unless every unit that the run implies is in its slot. What is not
        plainly right is looked at message by message."""
        try:
            further = FurtherSlots(self._files.queues.find)
            route(run, self._files.log, self.delay_levels, self, with_light=self._with_light, further=further)
        except (_Differs, RefusedError):
            self._further = FurtherSlots(self._files.queues.find)
            for record in walk(self._files.log, run.physical_offset, crc_from=run.end):
                if record.physical_offset >= run.end:
                    break
                if isinstance(record, StoredMessage):
                    self.check(record)

    def is_batch_topic(self, topic: str, queue_id: int) -> bool:
        """Whether units of the topic have 46 bytes."""
        return topic in self.batch_topics

    def add_units(self, run: QueueRun) -> None:
        """_Differs unless all units stand in their slots."""
        cursor = self.cursor(run.topic, run.queue_id, False)
        if cursor is None or not isinstance(cursor.queue, ConsumeQueue):
            raise _Differs
        for begin, end in consecutive(run.slots):
            found = read_units(cursor.queue, int(run.slots[begin]), end - begin)
            if not are_led_to(run.units[begin:end], found).all():
                raise _Differs
        cursor.end = int(run.slots[-1]) + 1

    def check(self, message: StoredMessage) -> None:
        """RefusedError unless every unit that `message` implies is in its slot."""
        for said in queue_slots(message, self.delay_levels, message.topic in self.batch_topics):
            slot = self._further.placed(said)
            if not slot.is_further or (self._with_light and not may_lack_further_slots(message.topic)):
                self.add(slot)
                continue
            with contextlib.suppress(RefusedError):
                self.add(slot)

    def add(self, slot: QueueSlot) -> None:
        """RefusedError unless the unit is in its slot, or cannot be: a later message of the queue has superseded it
        (the topic was deleted and created again, or its queue offsets were given twice), or its queue offset is
        impossible, and no recovery gives it a slot."""
        if not self._can_have_a_slot(slot):
            self._refuse_old_slot(slot)
            return
        cursor = self.cursor(slot.topic, slot.queue_id, slot.is_batch)
        if cursor is None:
            if self._is_superseded(slot) or self._is_earlier()(slot.topic, slot.unit.physical_offset):
                return
            raise self._missing(slot)
        found = cursor.next(slot.unit.queue_offset)
        if found is None or (found.physical_offset, found.size) != (slot.unit.physical_offset, slot.unit.size):
            if self._is_superseded(slot):
                return
            raise self._missing(slot)
        cursor.end = slot.unit.next_queue_offset

    def _refuse_old_slot(self, slot: QueueSlot) -> None:
        """RefusedError where the next unit leads to a message whose queue offset cannot be right."""
        cursor = self.cursor(slot.topic, slot.queue_id, slot.is_batch)
        unit = cursor.queue.unit(cursor.end) if cursor is not None and cursor.end else None
        if unit is not None and unit.is_written and unit.physical_offset == slot.unit.physical_offset:
            raise refusal(
                f"slot {unit.queue_offset} of queue {slot.topic}/{slot.queue_id} leads to this message, whose queue "
                f"offset is {slot.unit.queue_offset}",
                self._files.root,
                offset=slot.unit.physical_offset,
            )

    def _can_have_a_slot(self, slot: QueueSlot) -> bool:
        unit = slot.unit
        if slot.is_batch:
            return has_batch_slot(unit, 0)
        return 0 <= unit.queue_offset <= highest_plausible(unit.physical_offset, self._per_file)

    def _is_superseded(self, slot: QueueSlot) -> bool:
        queue = self._files.queues.find(slot.topic, slot.queue_id)
        if queue is None:
            return False
        log, unit = self._files.log, slot.unit
        read = functools.partial(message_if_any, log)
        return superseding(queue, unit.queue_offset, unit.physical_offset, read) is not None

    def cursor(self, topic: str, queue_id: int, is_batch: bool) -> Cursor | None:
        """The place in a queue; None if there is no such queue, or it is one of the other kind."""
        cursor = self._cursors.get((topic, queue_id))
        if cursor is None:
            queue = self._files.queues.find(topic, queue_id)
            if queue is None or is_batch != (queue.kind == "BatchCQ"):
                return None
            cursor = self._cursors[(topic, queue_id)] = Cursor(queue)
        return cursor

    def _missing(self, slot: QueueSlot) -> RefusedError:
        return refusal(
            f"queue {slot.topic}/{slot.queue_id} lacks this message in slot {slot.unit.queue_offset}",
            self._files.root,
            offset=slot.unit.physical_offset,
        )

    def check_ends(self, end_offset: int) -> None:
        """RefusedError for a queue that has problems with its files, or units beyond the log's messages."""
        for queue in self._files.queues.all():
            refuse_problems(queue.files.problems, self._files.root)
            max_offset = queue.max_offset
            if queue.files.files and not max_offset:
                raise self._phantom(queue, "has only zeros in its files")
            if isinstance(queue, ConsumeQueue) and queue.files.files[-1:]:
                last_file = queue.files.files[-1]
                if last_file.start_offset >= max_offset * UNIT_SIZE:
                    raise self._phantom(queue, "ends with a file of zeros")
            cursor = self._cursors.get((queue.topic, queue.queue_id))
            if cursor is not None:
                if max_offset != cursor.end:
                    raise self._phantom(queue, f"ends at {max_offset}, its messages at {cursor.end}")
                continue
            last = queue.unit(max_offset - 1) if max_offset else None
            if last is not None and last.is_written and last.end > min(self._begin, end_offset):
                raise self._phantom(queue, "ends with a unit that points at no message")

    def _phantom(self, queue: AnyConsumeQueue, what: str) -> RefusedError:
        return refusal(f"queue {queue.topic}/{queue.queue_id} {what}", self._files.root, queue.directory)


class Cursor:
    """Units of one queue in order, read in small pieces: there may be thousands of queues. `end`: the queue offset
    behind the last unit that was found right."""

    def __init__(self, queue: AnyConsumeQueue) -> None:
        self.queue = queue
        self._units: Iterator[QueueUnit] = iter(())
        self._expected = -1
        self.end = 0

    def next(self, queue_offset: int) -> QueueUnit | None:
        """The unit at `queue_offset`."""
        unit = next(self._units, None) if queue_offset == self._expected else None
        if unit is None or unit.queue_offset != queue_offset:
            self._units = self.queue.units(queue_offset, queue_offset + _BUFFERED_UNITS)
            unit = next(self._units, None)
        if unit is None or unit.queue_offset != queue_offset:
            return None
        self._expected = unit.next_queue_offset
        return unit


# Whether a store is fit to be appended to: the end of its log, and queues and index that agree with it.
#
# Only looks. Opening for writing never repairs: what does not fit is a RefusedError that names `recover`.


@dataclass(slots=True)
class LogEnd:
    """Where appending goes on. Offsets are physical, -1 where there is no message; times in ms."""

    end_offset: int = 0
    last_message_offset: int = -1
    last_timestamp: int = 0
    last_store_host: Host | None = None
    last_keyed_offset: int = -1
    last_indexed_offset: int = -1


def check_for_writing(files: StoreFiles, *, is_full: bool = False, events: Events = Events()) -> LogEnd:
    """The end of the log; RefusedError unless everything fits together.

    The last three files of the log are walked with CRC, with `is_full` all of them, and held against queues and index.
    """
    log, root = files.log, files.root
    refuse_problems(log.problems, root)
    if not any(is_directory(directory) for directory in log.directories) and files.queues.all():
        raise RefusedError(
            "the store has queues, but no commitlog",
            file=log.directories[0],
            hint=f"name its directories by storePathCommitLog (-c broker.conf), or run "
            f"`rmqctl recover -s {shlex.quote(str(root))}`",
        )
    survey = new_survey(log, max(log.min_offset, 0) if is_full else start_after_clean_stop(log))
    end = LogEnd()
    queues = QueueEndCheck(files, survey.start_offset)
    begin, digest = survey.start_offset, Digest(queues.delay_levels, tags=True)
    for record in judged_runs(log, digest, files.config, begin, progress=events.progress):
        if isinstance(record, Damage):
            raise refusal(f"the log is damaged: {record.detail}", root, record.file, record.physical_offset)
        if survey.stop is not None:
            text = "a file of zeros follows the end of the log"
            if not isinstance(record, Empty):
                text = "a record follows zeros in the log"
            raise refusal(text, root, offset=record.physical_offset)
        if not isinstance(record, Run):
            survey.pass_other(record)
            continue
        survey.pass_run(record)
        _note(end, record, log)
        queues.check_run(record)
    end.end_offset = survey.end_offset
    queues.check_ends(end.end_offset)
    _check_index(files, end)
    return end


def _note(end: LogEnd, run: Run, log: MappedFileQueue) -> None:
    last = walked_message(log, run.last_message_offset, run.end - run.last_message_offset)
    end.last_message_offset = last.physical_offset
    end.last_timestamp = last.store_timestamp
    end.last_store_host = last.store_host
    keyed = run.key_offsets[~run.key_is_tag]
    if len(keyed):
        end.last_keyed_offset = int(keyed[-1])
    if len(run.key_offsets):
        end.last_indexed_offset = int(run.key_offsets[-1])


def _check_index(files: StoreFiles, end: LogEnd) -> None:
    if not files.config.writes_index_files:
        return
    index = files.index
    used = [file for file in index.files if file.header.index_count > 1]
    # a file is named by the clock: where that went back, the newest file is not the last one
    newest = max(used, key=lambda file: file.header.end_physical_offset, default=None)
    indexed_to = -1 if newest is None else newest.header.end_physical_offset
    is_whole = True
    if newest is not None:
        last = newest.entry(newest.header.index_count - 1)
        # the newest entry is the head of its chain
        is_whole = newest.slot(last.key_hash) == last.number
    if (
        indexed_to >= end.end_offset
        or not is_whole
        # tags may be indexed or not: that depends on the version of the broker
        or (end.last_keyed_offset >= 0 and indexed_to not in (end.last_keyed_offset, end.last_indexed_offset))
    ):
        if files.has_keys_in_rocksdb_alone:
            raise RefusedError(
                "there is no index file; the keys may be in rocksdbstore/, which rmqctl does not write",
                file=index.directory,
                hint="set messageIndexEnable=false in -c broker.conf to append without keys; where index files were "
                "lost, `rmqctl rebuild --index` makes them",
            )
        raise RefusedError(
            "the index does not hold the keys of the last messages, or points beyond them",
            file=index.directory,
            hint=f"run `rmqctl recover -s {shlex.quote(str(files.root))}` first, or set messageIndexEnable=false to "
            "append without keys",
        )


DEFAULT_COMMITLOG_FILE_SIZE = 1024 * 1024 * 1024
# what a directory may hold and still count as empty
_NOT_A_STORE_YET = {"lock", "config", "abort.bak", "lost+found"}


class OpenedStore(NamedTuple):
    """A store that is ours now: locked, checked, marked with `abort`, the log's positions set to its end."""

    files: StoreFiles
    lock: StoreLock
    end: LogEnd


def open_store_for_writing(
    root: Path,
    config: StoreConfig | None = None,
    *,
    create: bool = False,
    is_full_check: bool = False,
    events: Events = Events(),
) -> OpenedStore:
    """Take the store at `root` for writing; with `create` a missing or empty directory becomes a new store.

    UsageError for a messageDelayLevel that does not parse, StoreInUseError if another process has it, RefusedError if
    it was not closed cleanly, its parts do not agree or a change of it was interrupted, UnsupportedError for queues in
    a RocksDB. A refused store is left as it was, byte for byte; but that a new `lock` file may appear if the store
    changes while it is being opened.
    """
    config = config or StoreConfig()
    if config.read_only_commit_log_store_paths:
        raise UnsupportedError(
            "a commitlog with read-only directories is not written to yet",
            file=config.read_only_commit_log_store_paths,
            hint="reading works; to write, take readOnlyCommitLogStorePaths out of the configuration",
        )
    config.delay_levels_to_write()
    layout = config.layout(root)
    if create and is_empty_place(layout):
        io.make_directories(layout.root, flushed=True)
    else:
        refuse_unfinished(layout)
        with named(root), StoreFiles(root, config) as files:
            # a refusal must leave nothing behind, not even the lock file
            if not exists(layout.lock):
                check_store(files, is_full_check, events)
    lock = take_for_change(layout)
    try:
        # once more, now that nobody else can: meanwhile the store may have been made, written to, or removed
        if create and is_empty_place(layout):
            return _created(layout, config, lock)
        return _opened(root, config, lock, is_full_check, events)
    except BaseException:
        lock.release()
        raise


def _opened(root: Path, config: StoreConfig, lock: StoreLock, is_full_check: bool, events: Events) -> OpenedStore:
    files = StoreFiles(root, config)
    try:
        with named(root):
            end = check_store(files, is_full_check, events)
        files.log.is_shared = False
        files.log.truncate(end.end_offset)
        _mark(files.layout)
    except BaseException:
        files.close()
        raise
    return OpenedStore(files, lock, end)


def check_store(files: StoreFiles, is_full: bool = False, events: Events = Events()) -> LogEnd:
    """Return the end of the log; RefusedError or UnsupportedError for a store that cannot be written to."""
    refuse_dledger(files.layout)
    if files.has_abort():
        raise refusal("the store was not closed cleanly", files.root, files.layout.abort)
    if has_rocksdb_queues(files.layout):
        error = rocksdb_error(files.layout)
        error.hint = "its queues could not be kept in step, so nothing can be appended"
        raise error
    if files.config.enable_dleger_commit_log:
        raise RefusedError("enableDLegerCommitLog=true: logs of DLedger cannot be written", file=files.root)
    if (files.config.store_type or "").startswith("defaultRocksDB"):
        raise RefusedError("storeType=defaultRocksDB: the queues of such a store cannot be written", file=files.root)
    if not files.log.file_size:
        files.log.file_size = DEFAULT_COMMITLOG_FILE_SIZE
    return check_for_writing(files, is_full=is_full, events=events)


def is_empty_place(layout: StoreLayout) -> bool:
    """Whether a new store may be made there: there is nothing yet, or nothing but what may lie beside a store's files.
    NotAStoreError for a file, UnreadableError."""
    names = names_at(layout.root)
    if names is None:
        return True
    return names <= _NOT_A_STORE_YET and not any(is_directory(directory) for directory in layout.commitlog)


def names_at(root: Path) -> set[str] | None:
    """Return the names in a directory that may become a store, None without it. NotAStoreError, UnreadableError."""
    try:
        return set(os.listdir(root))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise NotAStoreError("is a file, not a directory", file=root) from None
    except OSError as error:
        raise unreadable(error, root, "listed") from error


def _created(layout: StoreLayout, config: StoreConfig, lock: StoreLock) -> OpenedStore:
    """A new store: the directories that a broker makes, before it has any message."""
    for directory in (*layout.commitlog, layout.consumequeue):
        io.make_directories(directory, flushed=True)
    files = StoreFiles(layout.root, config)
    files.log.is_shared = False
    if not files.log.file_size:
        files.log.file_size = DEFAULT_COMMITLOG_FILE_SIZE
    _mark(layout)
    return OpenedStore(files, lock, LogEnd())


def _mark(layout: StoreLayout) -> None:
    """Write `abort` with our process id, as a broker does; the file shows that the store was not closed cleanly. If
    that fails the file is missing, because nothing was written to the store."""
    try:
        io.write_whole(layout.abort, str(os.getpid()).encode("ascii"))
    except BaseException:
        _unmark_unused(layout)
        raise


def _unmark_unused(layout: StoreLayout) -> None:
    """Remove the `abort` of a store that we have written nothing to; a disk that fails keeps it."""
    with contextlib.suppress(RmqctlError):
        if is_there(layout.abort):
            unmark(layout)


def give_back(opened: OpenedStore) -> None:
    """Let go of a store that was taken and not written to: it is as it was closed before, and its lock is free."""
    _unmark_unused(opened.files.layout)
    try:
        opened.files.close()
    finally:
        opened.lock.release()


def unmark(layout: StoreLayout) -> None:
    """Remove `abort`: everything is on disk and agrees."""
    io.remove(layout.abort)
    io.flush_directory(layout.root)
