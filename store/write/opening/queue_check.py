"""Whether the queues agree with the messages at the end of the log, one message after the other."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Iterator
from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.known_names import KnownNames
from rmqctl.store.commitlog.one_message import message_if_any
from rmqctl.store.files.mapped_file_queue import FileProblem
from rmqctl.store.queues.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.store.queues.dispatch import QueueSlot, highest_plausible, may_lack_further_slots, queue_slots
from rmqctl.store.queues.earlier_life import superseding
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.queues.unit import QueueUnit
from rmqctl.store.recover.mend.slot_order import has_batch_slot
from rmqctl.store.store_files import StoreFiles

_BUFFERED_UNITS = 512


def refusal(message: str, root: Path, file: Path | str | None = None, offset: int | None = None) -> RefusedError:
    """The refusal to write to the store at `root`."""
    hint = f"run `rmqctl recover -s {shlex.quote(str(root))}` first"
    return RefusedError(message, file=file or root, physical_offset=offset, hint=hint)


def refuse_problems(problems: list[FileProblem], root: Path) -> None:
    """RefusedError if there is any."""
    for problem in problems:
        raise refusal(problem.detail, root, problem.path)


class QueueEndCheck:
    """Holds the queues against the messages of the walk: every unit in its slot, and no unit without its message."""

    def __init__(self, files: StoreFiles, begin: int) -> None:
        self._files = files
        self._begin = begin
        self.delay_levels = files.config.delay_levels_to_write()
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._per_file = files.queues.consumequeue_file_size() // UNIT_SIZE
        # a topic that was removed has no queue, and needs none
        self._is_removed = functools.cache(KnownNames.of(files).is_removed)
        self.batch_topics = {queue.topic for queue in files.queues.all() if queue.kind == "BatchCQ"}

    def check(self, message: StoredMessage) -> None:
        """RefusedError unless every unit that `message` implies stands in its slot."""
        for slot in queue_slots(message, self.delay_levels, message.topic in self.batch_topics):
            if slot.topic == message.topic or not may_lack_further_slots(message.topic):
                self.check_slot(slot)
                continue
            with contextlib.suppress(RefusedError):
                self.check_slot(slot)

    def check_slot(self, slot: QueueSlot) -> None:
        """RefusedError unless the unit stands in its slot, or cannot: a later message of the queue has superseded it
        (the topic was deleted and created again, or its queue offsets were given twice), or its queue offset cannot be
        right, and no recovery gives it a slot."""
        if not self._can_have_a_slot(slot):
            self._refuse_old_slot(slot)
            return
        cursor = self.cursor(slot.topic, slot.queue_id, slot.is_batch)
        if cursor is None:
            if self._is_superseded(slot) or self._is_removed(slot.topic):
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
