"""The end of the log, found from its last bytes: for looks that have no time to walk the whole log."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.store.commitlog.walk import Blank, Damage, Empty, walk
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import end_of_nonzero

_WINDOW = 1024 * 1024
_GROWTH = 8


@dataclass(slots=True)
class Tail:
    """`begin`: the first frame looked at; `end`: behind the last good record. Offsets physical, times in ms.

    `damage`: what stands at `end` if it is no zeros; the first of it where there is more. `inside`: damage before it.
    `timestamp_before_damage`: of the last message before the first damage inside, 0 if there is none.
    """

    begin: int = 0
    end: int = 0
    messages: int = 0
    last_store_timestamp: int = 0
    largest_store_timestamp: int = 0
    timestamp_before_damage: int = 0
    damage: Damage | None = None
    inside: list[Damage] = field(default_factory=list)

    @property
    def is_stale_behind_damage(self) -> bool:
        """Whether what follows the damage was stored before what precedes it: it is left over from before a truncation,
        which clears nothing."""
        return bool(self.inside) and self.last_store_timestamp < self.timestamp_before_damage

    @property
    def valid_end(self) -> int:
        """Behind the last record that belongs to the log."""
        return self.inside[0].physical_offset if self.is_stale_behind_damage else self.end


def last_file_with_data(log: MappedFileQueue) -> MappedFile | None:
    """The last file that is not all zeros; None if there is none."""
    for file in reversed(log.files):
        if any(file.read(0, 8)) or end_of_nonzero(file.descriptors, file.path, 0, file.size):
            return file
    return None


def look_at_tail(log: MappedFileQueue, window: int = _WINDOW) -> Tail:
    """Walk about the last `window` bytes of the log, checksums included."""
    file = last_file_with_data(log)
    if file is None:
        begin = max(log.min_offset, 0)
        return Tail(begin, begin)
    nonzero = end_of_nonzero(file.descriptors, file.path, 0, file.size)
    start = file.start_offset + max(0, nonzero - window)
    tail = Tail(start, start)
    is_found = start == file.start_offset
    for record in walk(log, start):
        if isinstance(record, Empty) or record.physical_offset >= file.start_offset + file.size:
            break
        if isinstance(record, StoredMessage | Blank):
            if not is_found:
                tail.begin, is_found = record.physical_offset, True
            if tail.damage is not None:
                if not tail.inside:
                    tail.timestamp_before_damage = tail.last_store_timestamp
                tail.inside.append(tail.damage)
                tail.damage = None
            tail.end = record.end
            if isinstance(record, StoredMessage):
                tail.messages += 1
                tail.last_store_timestamp = record.store_timestamp
                tail.largest_store_timestamp = max(tail.largest_store_timestamp, record.store_timestamp)
        elif is_found and tail.damage is None and record.reason is not Reason.SHORT_FILE:
            tail.damage = record
    if is_found:
        return tail
    # no frame began in the last bytes: a message as large as the window, or damage as large
    return look_at_tail(log, window * _GROWTH)
