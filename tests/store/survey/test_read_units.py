"""What stands in slots of a queue whatever is left of its files, and stretches of slots."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.files.layout import file_name
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.log.implied import UNIT, consecutive, read_units
from rmqctl.store.queues.consumequeue import ConsumeQueue

PER_FILE = 5
FILE_SIZE = PER_FILE * 20


def test_slots_are_read_as_zeros_where_there_is_no_file(tmp_path: Path) -> None:
    """The first files are gone, one in the middle is missing, one is short; behind the last there is none."""
    image = bytearray(60 * 20)
    for number, length in ((2, FILE_SIZE), (3, FILE_SIZE), (5, FILE_SIZE), (6, 70), (7, FILE_SIZE)):
        slots = range(number * PER_FILE, (number + 1) * PER_FILE)
        data = b"".join(struct.pack(">qiq", slot * 100 + 1, slot + 1, -slot) for slot in slots)[:length]
        (tmp_path / file_name(number * FILE_SIZE)).write_bytes(data)
        image[number * FILE_SIZE : number * FILE_SIZE + length] = data
    queue = ConsumeQueue("T", 0, tmp_path, FILE_SIZE, Descriptors())
    queue.load()
    for begin in range(45):
        for count in range(16):
            found = read_units(queue, begin, count)
            assert found.dtype == UNIT
            assert found.tobytes() == image[begin * 20 : (begin + count) * 20], (begin, count)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), max_size=12))
def test_stretches_of_slots(slots: list[int]) -> None:
    expected: list[tuple[int, int]] = []
    for place, slot in enumerate(slots):
        if place and slot == slots[place - 1] + 1:
            expected[-1] = (expected[-1][0], place + 1)
        else:
            expected.append((place, place + 1))
    assert consecutive(np.array(slots, np.int64)) == expected
