"""The mend of a queue said plainly, unit by unit: what the one that works on many units at once must agree with."""

from __future__ import annotations

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import MINIMUM_FRAME_SIZE
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, UNIT_SIZE, QueueUnit, ext_offset
from rmqctl.store.recover.queues import ConsumeQueueMend

_FLUSH_UNITS = 8192
_PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)


class PlainMend(ConsumeQueueMend):
    """One queue, one unit at a time."""

    def add(self, unit: QueueUnit) -> None:
        room = max(0, unit.physical_offset - self._end_of_previous) // MINIMUM_FRAME_SIZE
        limit = max((self._next or 0) + room + self._per_file, self.queue.max_offset)
        if not 0 <= unit.queue_offset <= limit:
            self.conflicts += 1
            return
        self._end_of_previous = unit.end
        if self._next is None:
            first = self.queue.first_slot if self.queue.files.files else unit.queue_offset
            self._next = self._buffer_start = min(first, unit.queue_offset - unit.queue_offset % self._per_file)
        if unit.queue_offset < self._next:
            self.conflicts += 1
            return
        for slot in range(self._next, unit.queue_offset):
            existing = self._unit(slot)
            there = QueueUnit(slot, *CONSUMEQUEUE_UNIT.unpack_from(existing, 0))
            stays = there.is_placeholder or (there.is_written and self._is_gone(there.physical_offset))
            self._put(existing if stays else _PLACEHOLDER)
        self._put(CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code))

    def _unit(self, slot: int) -> bytes:
        return self._files.read(slot * UNIT_SIZE, UNIT_SIZE)

    def _put(self, packed: bytes) -> None:
        self._buffer.append(packed)
        self._next = (self._next or 0) + 1
        if len(self._buffer) >= _FLUSH_UNITS or self._next % self._per_file == 0:
            self._flush()

    def _flush(self) -> None:
        wanted = b"".join(self._buffer)
        start, self._buffer = self._buffer_start, []
        self._buffer_start = self._next or 0
        existing = self._files.read(start * UNIT_SIZE, len(wanted))
        differing = [
            position
            for position in range(0, len(wanted), UNIT_SIZE)
            if not self._are_same(existing[position : position + UNIT_SIZE], wanted[position : position + UNIT_SIZE])
        ]
        if not differing:
            return
        for position in differing:
            _, size, _ = CONSUMEQUEUE_UNIT.unpack_from(existing, position)
            self.removed += 0 < size < PLACEHOLDER_SIZE
        self.added += len(differing)
        begin, end = differing[0], differing[-1] + UNIT_SIZE
        data = bytearray(existing[begin:end])
        for position in differing:
            data[position - begin : position - begin + UNIT_SIZE] = wanted[position : position + UNIT_SIZE]
        self._files.write(start * UNIT_SIZE + begin, bytes(data))

    def _are_same(self, existing: bytes, wanted: bytes) -> bool:
        """Equal, or equal but for a tags code that addresses an ext unit with the wanted code."""
        offset, size, code = CONSUMEQUEUE_UNIT.unpack_from(existing, 0)
        *place, wanted_code = CONSUMEQUEUE_UNIT.unpack_from(wanted, 0)
        address = ext_offset(code)
        is_led = [offset, size] == place
        return is_led and (code == wanted_code or (address is not None and self._ext_code(address) == wanted_code))

    def finish(self) -> None:
        if self._next is None:
            self._next = self._buffer_start = self.queue.first_slot
        waiting = []
        for slot in range(self._next, self.queue.max_offset):
            existing = self._unit(slot)
            unit = QueueUnit(slot, *CONSUMEQUEUE_UNIT.unpack_from(existing, 0))
            waiting.append(existing)
            if unit.is_written and self._is_gone(unit.physical_offset):
                for one in waiting:
                    self._put(one)
                waiting = []
            elif not unit.is_placeholder:
                break
        if self._buffer:
            self._flush()
        self.removed += sum(unit.is_written for unit in self.queue.units(self._next))
        self._files.clear_from(self._next * UNIT_SIZE, self._descriptors)
