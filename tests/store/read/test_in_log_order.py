"""Messages in the order of the log: the plain beginning, the columns behind it, and damage at either's edge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.options import Events
from rmqctl.store.read import select as module
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.select import Selection, in_log_order, plain_start, walked_bytes
from tests.store.logs import changed, frame, log_of

COUNT = 12


@pytest.fixture
def log(tmp_path: Path) -> MappedFileQueue:
    """Two files of frames of one size; the fourth and the tenth frame are damaged."""
    size = len(frame(0))
    data = [frame(number * size, queue_offset=number, queue_id=number % 2) for number in range(COUNT)]
    for number in (3, 9):
        data[number] = changed(data[number], 90, b"\xff")
    return log_of(tmp_path, b"".join(data[:6]), b"".join(data[6:]))


SIZE = len(frame(0))
GOOD = [number for number in range(COUNT) if number not in (3, 9)]
DAMAGED = [3, 9]


class _Told:
    """What `on_damage` is told, as numbers of frames."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, error: CorruptError) -> None:
        assert error.physical_offset is not None
        assert error.message.startswith(f"damaged up to {error.physical_offset + SIZE} ({SIZE} bytes): ")
        self.numbers.append(error.physical_offset // SIZE)


def _numbers(found: Iterator[StoredMessage]) -> list[int]:
    return [message.queue_offset for message in found]


# the limits below which nothing but the plain walk is used, and where it ends in between
@pytest.mark.parametrize("plain_bytes", [-1, 0, SIZE, 2 * SIZE, 5 * SIZE + 1, 8 * 1024 * 1024])
def test_every_part_is_the_same_wherever_the_plain_walk_ends(
    log: MappedFileQueue, plain_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLAIN_BYTES", plain_bytes)
    for first in range(COUNT + 1):
        for last in (None, *range(first, COUNT + 1)):
            for nudge in (0, 1):
                begin = max(0, first * SIZE - nudge)
                end = None if last is None else last * SIZE + nudge
                stop = COUNT * SIZE if end is None else end
                told = _Told()
                found = _numbers(in_log_order(log, Selection(begin=begin, end=end), Events(damage=told)))
                assert found == [number for number in GOOD if begin <= number * SIZE < stop], (begin, end)
                # damage that reaches into the part is told, too
                assert told.numbers == [
                    number for number in DAMAGED if (number + 1) * SIZE > begin and number * SIZE < stop
                ], (begin, end)


def test_messages_that_are_not_meant_are_passed(log: MappedFileQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    for plain_bytes in (-1, 3 * SIZE, 1 << 20):
        monkeypatch.setattr(module, "PLAIN_BYTES", plain_bytes)
        told = _Told()
        found = _numbers(in_log_order(log, Selection(Criteria(queue_id=1)), Events(damage=told)))
        assert (found, told.numbers) == ([1, 5, 7, 11], DAMAGED)


def test_what_the_plain_start_leaves(log: MappedFileQueue) -> None:
    for most, first, rest in ((1, 0, 1), (2 * SIZE, 0, 2), (3 * SIZE, 0, 4), (4 * SIZE, 0, 4), (2 * SIZE, 5, 7)):
        told = _Told()
        found, left = _start(log, Selection(begin=first * SIZE), most, told)
        assert found == [number for number in GOOD if first <= number < rest]
        assert left == Selection(begin=rest * SIZE, criteria=left.criteria if left else Criteria())
        # the damage before the first message that is left
        assert told.numbers == [number for number in DAMAGED if first <= number < rest]
    for selection in (Selection(), Selection(end=7 * SIZE)):
        found, left = _start(log, selection, COUNT * SIZE, _Told())
        assert (found[-1], left) == (11 if selection.end is None else 6, None)


def _start(log: MappedFileQueue, selection: Selection, most: int, told: _Told) -> tuple[list[int], Selection | None]:
    found: list[int] = []
    walk = plain_start(log, selection, most, Events(damage=told))
    while True:
        try:
            found.append(next(walk).queue_offset)
        except StopIteration as stop:
            return found, stop.value


def test_nothing_is_read_plainly_where_the_way_to_the_first_message_is_long(
    log: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLAIN_BYTES", 2 * SIZE)
    for begin, expected in ((2 * SIZE, [2]), (2 * SIZE + 1, []), (8 * SIZE, [8]), (8 * SIZE + 1, [])):
        selection = Selection(begin=begin)
        found, left = _start(log, selection, SIZE, _Told())
        assert (found, left is selection) == (expected, not expected)
    # from a record that somebody knows the way is short
    told = _Told()
    walk = in_log_order(log, Selection(begin=5 * SIZE), Events(damage=told), start=4 * SIZE)
    assert (_numbers(walk), told.numbers) == ([5, 6, 7, 8, 10, 11], [9])


def test_how_many_bytes_are_walked(log: MappedFileQueue) -> None:
    file = 6 * SIZE
    for begin, end, walked in (
        (0, None, 2 * file),
        (0, 100, 100),
        (SIZE, None, 2 * file),
        (SIZE, SIZE + 5, SIZE + 5),
        (file - 1, None, 2 * file),
        (file, None, file),
        (file + 5, file + 7, 7),
        (0, 1 << 40, 2 * file),
        (2 * file, None, 0),
        (1 << 40, None, 0),
    ):
        assert walked_bytes(log, Selection(begin=begin, end=end)) == walked, (begin, end)


def test_only_what_is_left_of_a_log_is_walked(tmp_path: Path) -> None:
    log = log_of(tmp_path, frame(1000).ljust(1000, b"\0"), first=1000)
    assert walked_bytes(log, Selection()) == 1000
    assert walked_bytes(log, Selection(end=1500)) == 500
    assert walked_bytes(log, Selection(end=900)) == 0
    told: list[Any] = []
    assert [one.physical_offset for one in in_log_order(log, Selection(), Events(damage=told.append))] == [1000]
    assert told == []


def test_a_message_that_changes_while_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_BYTES", -1)
    data = b"".join(frame(number * SIZE, queue_offset=number) for number in range(4))
    log = log_of(tmp_path, data)
    told: list[CorruptError] = []
    found = in_log_order(log, Selection(), Events(damage=told.append))
    assert next(found).queue_offset == 0
    log.files[0].path.write_bytes(changed(data, 2 * SIZE, bytes(4)))
    assert _numbers(found) == [1, 3]
    [error] = told
    assert error.message.startswith("changed while it was read: ")
    assert error.physical_offset == 2 * SIZE
    assert error.hint == "another program writes to this store or removes files of it: try again"
