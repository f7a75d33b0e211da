"""Whether a store is fit to be appended to: the end of its log, and queues and index that agree with it.

Only looks. Opening for writing never repairs: what does not fit is a RefusedError that names `recover`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from formats.errors import RefusedError
from formats.hosts import Host
from formats.message import StoredMessage
from store.commitlog.walk import Blank, Damage, Empty, Progress, walk
from store.dispatch import QueueSlot, index_keys, queue_slots
from store.files.mapped_file_queue import FileProblem
from store.log_survey import start_after_clean_stop
from store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from store.queues.queue_table import AnyConsumeQueue
from store.queues.unit import QueueUnit
from store.store_files import StoreFiles

_BUFFERED_UNITS = 512


@dataclass(slots=True)
class LogEnd:
    """Where appending goes on. Offsets are physical, -1 where there is no message; times in ms."""

    end_offset: int = 0
    last_message_offset: int = -1
    last_timestamp: int = 0
    last_store_host: Host | None = None
    last_keyed_offset: int = -1


def refusal(message: str, root: Path, file: Path | str | None = None, offset: int | None = None) -> RefusedError:
    """The refusal to write to the store at `root`."""
    return RefusedError(
        message, file=file or root, physical_offset=offset, hint=f"run `rmqctl recover -s {root}` first"
    )


def check_for_writing(files: StoreFiles, *, is_full: bool = False, progress: Progress | None = None) -> LogEnd:
    """The end of the log; RefusedError unless everything fits together.

    The last three files of the log are walked with CRC, with `is_full` all of them, and held against queues and index.
    """
    log, root = files.log, files.root
    _refuse_problems(log.problems, root)
    if not any(directory.is_dir() for directory in log.directories) and files.queues.all():
        raise RefusedError(
            "the store has queues, but no commitlog",
            file=log.directories[0],
            hint=f"name its directories by storePathCommitLog (-c broker.conf), or run `rmqctl recover -s {root}`",
        )
    begin = max(log.min_offset, 0) if is_full else start_after_clean_stop(log)
    end = LogEnd(end_offset=max(log.min_offset, 0))
    queues = _QueueCheck(files, begin)
    is_over = False
    for record in walk(log, begin, crc_from=begin, progress=progress):
        if isinstance(record, Damage):
            raise refusal(f"the log is damaged: {record.detail}", root, record.file, record.physical_offset)
        if isinstance(record, Empty):
            if is_over:
                raise refusal("a file of zeros lies behind the end of the log", root, offset=record.physical_offset)
            is_over = True
        elif is_over:
            raise refusal("a record lies behind zeros in the log", root, offset=record.physical_offset)
        elif isinstance(record, Blank):
            end.end_offset = record.physical_offset + record.size
        else:
            _note(end, record)
            queues.check(record)
    queues.check_ends(end.end_offset)
    _check_index(files, end)
    return end


def _refuse_problems(problems: list[FileProblem], root: Path) -> None:
    for problem in problems:
        raise refusal(problem.detail, root, problem.path)


def _note(end: LogEnd, message: StoredMessage) -> None:
    end.end_offset = message.end
    end.last_message_offset = message.physical_offset
    end.last_timestamp = message.store_timestamp
    end.last_store_host = message.store_host
    if index_keys(message):
        end.last_keyed_offset = message.physical_offset


class _QueueCheck:
    """Holds the queues against the messages of the walk: every unit in its slot, and no unit without its message."""

    def __init__(self, files: StoreFiles, begin: int) -> None:
        self._files = files
        self._begin = begin
        self._delay_levels = files.config.delay_levels()
        self._cursors: dict[tuple[str, int], _Cursor] = {}
        self._batch_topics = {queue.topic for queue in files.queues.all() if queue.kind == "BatchCQ"}

    def check(self, message: StoredMessage) -> None:
        """RefusedError unless every unit that `message` implies stands in its slot."""
        for slot in queue_slots(message, self._delay_levels, message.topic in self._batch_topics):
            key = (slot.topic, slot.queue_id)
            cursor = self._cursors.get(key)
            if cursor is None:
                queue = self._files.queues.find(*key)
                if queue is None or slot.is_batch != (queue.kind == "BatchCQ"):
                    raise self._missing(slot)
                cursor = self._cursors[key] = _Cursor(queue)
            found = cursor.next(slot.unit.queue_offset)
            if found is None or (found.physical_offset, found.size) != (slot.unit.physical_offset, slot.unit.size):
                raise self._missing(slot)
            cursor.end = slot.unit.next_queue_offset

    def _missing(self, slot: QueueSlot) -> RefusedError:
        return refusal(
            f"queue {slot.topic}/{slot.queue_id} lacks this message in slot {slot.unit.queue_offset}",
            self._files.root,
            offset=slot.unit.physical_offset,
        )

    def check_ends(self, end_offset: int) -> None:
        """RefusedError for a queue that has problems with its files, or units beyond the log's messages."""
        for queue in self._files.queues.all():
            _refuse_problems(queue.files.problems, self._files.root)
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


class _Cursor:
    """Units of one queue in order, read in small pieces: there may be thousands of queues. `end`: the queue offset
    behind the last unit that was found right."""

    def __init__(self, queue: AnyConsumeQueue) -> None:
        self._queue = queue
        self._units: Iterator[QueueUnit] = iter(())
        self._expected = -1
        self.end = 0

    def next(self, queue_offset: int) -> QueueUnit | None:
        """The unit at `queue_offset`."""
        unit = next(self._units, None) if queue_offset == self._expected else None
        if unit is None or unit.queue_offset != queue_offset:
            self._units = self._queue.units(queue_offset, queue_offset + _BUFFERED_UNITS)
            unit = next(self._units, None)
        if unit is None or unit.queue_offset != queue_offset:
            return None
        self._expected = unit.next_queue_offset
        return unit


def _check_index(files: StoreFiles, end: LogEnd) -> None:
    if not files.config.message_index_enable:
        return
    index = files.index
    used = [file for file in index.files if file.header.index_count > 1]
    indexed_to = used[-1].header.end_physical_offset if used else -1
    is_whole = True
    if used:
        last = used[-1].entry(used[-1].header.index_count - 1)
        # the newest entry is the head of its chain
        is_whole = used[-1].slot(last.key_hash) == last.number
    if (
        indexed_to >= end.end_offset
        or not is_whole
        or (end.last_keyed_offset >= 0 and indexed_to != end.last_keyed_offset)
    ):
        raise RefusedError(
            "the index does not hold the keys of the last messages, or points beyond them",
            file=index.directory,
            hint=f"run `rmqctl recover -s {files.root}` first, or set messageIndexEnable=false to append without keys",
        )
