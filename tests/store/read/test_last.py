"""The last messages are those that a walk over everything would end with, and come without such a walk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.resync import LOOK_BACK
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.read import select as last
from rmqctl.store.read.filter import Criteria, TopicFilter
from rmqctl.store.read.get import QueueView
from rmqctl.store.read.select import Order, Selection, last_in_log_order
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import sample
from tests.store.logs import frame, log_of
from tests.store.read.reads import reads_of

CHOSEN: dict[str, dict[str, Any]] = {
    "all": {},
    "topic": {"topic": "OrderTopic"},
    "pattern": {"topic": TopicFilter(["*Topic"], system_topics=False)},
    "grep": {"grep": "TagA|user"},
}


@pytest.mark.parametrize("name", sample(GOLDENS, ["gap", "torn-zero", "short-middle", "innerbatch"]))
@pytest.mark.parametrize("order", ["log", "queue"])
def test_they_are_those_at_the_end(name: str, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    if order == "queue" and name.startswith("rocksdb"):
        return
    opened = reader(name)
    for chosen in CHOSEN.values():
        if order == "queue" and chosen.get("topic") not in (None, *opened.files.queues.topics()):
            continue
        selection = Selection(Criteria(**chosen))
        told: list[CorruptError] = []
        every = [m.physical_offset for m in opened.telling(Events(damage=told.append)).messages(selection, order)]
        for span, count in ((256 * 1024, 1), (20_000, 20), (20_000, 100_000)):
            monkeypatch.setattr(last, "_FIRST_BYTES", span)
            monkeypatch.setattr(last, "_FIRST_UNITS", span // 100)
            found: list[CorruptError] = []
            got = opened.telling(Events(damage=found.append)).last_messages(selection, count, order)
            assert [message.physical_offset for message in got] == every[-count:]
            if count > len(every):
                assert sorted(map(str, found)) == sorted(map(str, told)) or order == "queue"


def test_the_log_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last, "_FIRST_BYTES", 4096)
    opened = reader("clean")
    read: list[int] = []
    plain = opened.files.descriptors.read

    def counted(path: Any, position: int, length: int) -> bytes:
        data = plain(path, position, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(opened.files.descriptors, "read", counted)
    assert len(opened.telling(Events(damage=lambda _: None)).last_messages(Selection(), 3)) == 3
    assert sum(read) < sum(file.size for file in opened.files.log.files) / 2


@pytest.mark.parametrize("name", sample(GOLDENS, ["gap", "crc-flip-third", "first-gone"]))
def test_of_a_part_they_are_those_at_its_end_with_the_damage_behind_the_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = reader(name)
    places = [
        message.physical_offset for message in opened.telling(Events(damage=lambda _: None)).messages(Selection())
    ]
    if not places:
        return
    monkeypatch.setattr(last, "_FIRST_BYTES", 30_000)
    middle, late = places[len(places) // 2], places[len(places) * 9 // 10]
    parts = [(0, middle), (middle, None), (middle, late), (middle + 1, late + 1), (places[3], places[4]), (0, 1),
             (late, late), (opened.files.log.max_offset, None), (places[-1], None), (places[-1] + 1, None)]  # fmt: skip
    for begin, end in parts:
        selection = Selection(begin=begin, end=end)
        told: list[CorruptError] = []
        every = [m.physical_offset for m in opened.telling(Events(damage=told.append)).messages(selection)]
        # the first one may be right behind damage, or right before it
        edges = [sum(one > (error.physical_offset or 0) for one in every) for error in told]
        for count in {1, 2, 7, len(every), len(every) + 1, *edges, *(edge + 1 for edge in edges)} - {0}:
            found: list[CorruptError] = []
            got = opened.telling(Events(damage=found.append)).last_messages(selection, count)
            assert [message.physical_offset for message in got] == every[-count:], (begin, end, count)
            behind = every[-count] if count <= len(every) else -1
            assert [str(one) for one in found] == [
                str(one) for one in told if one.physical_offset is not None and one.physical_offset > behind
            ], (begin, end, count)


@pytest.mark.parametrize("name", ["clean", "innerbatch", "lmq"])
def test_of_a_part_of_the_queues_they_are_those_at_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = reader(name)
    monkeypatch.setattr(last, "_FIRST_UNITS", 3)
    for begin, end in ((0, 5), (2, None), (2, 9), (4, 4), (0, 1), (1 << 40, None)):
        selection = Selection(begin=begin, end=end)
        every = [m.physical_offset for m in opened.telling(Events(damage=_fail)).messages(selection, "queue")]
        for count in (1, 4, len(every) + 1):
            got = opened.telling(Events(damage=_fail)).last_messages(selection, count, "queue")
            assert [message.physical_offset for message in got] == every[-count:], (begin, end, count)


def _fail(error: CorruptError) -> None:
    raise error


def test_a_queue_is_not_gone_through_for_its_last_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = reader("clean")
    monkeypatch.setattr(last, "_FIRST_UNITS", 8)
    queue = max(opened.queues(), key=lambda one: one.max_offset)
    asked: list[QueueUnit] = []
    plain = QueueView.message_of

    def counted(view: QueueView, unit: QueueUnit) -> StoredMessage:
        asked.append(unit)
        return plain(view, unit)

    monkeypatch.setattr(QueueView, "message_of", counted)
    selection = Selection(Criteria(topic=queue.topic, queue_id=queue.queue_id))
    for count, most in ((3, 8), (8, 8), (9, 8 + 32)):
        asked.clear()
        assert len(opened.telling(Events(damage=_fail)).last_messages(selection, count, "queue")) == count
        assert len(asked) <= most


def test_what_sticks_out_into_the_next_file_is_that_file_s(tmp_path: Path) -> None:
    size = len(frame(0))
    data = [b"".join(frame(place, queue_offset=place // size) for place in range(first, first + 4 * size, size))
            for first in (0, 4 * size, 8 * size)]  # fmt: skip
    log = log_of(tmp_path, data[0] + frame(4 * size, b"else"), *data[1:], file_size=4 * size)
    for begin in range(0, 12 * size, size):
        for count in (1, 5, 12):
            told: list[CorruptError] = []
            got = last_in_log_order(log, Selection(begin=begin), count, Events(damage=told.append))
            assert [message.queue_offset for message in got] == list(range(12))[begin // size :][-count:]
            assert {message.body for message in got} == {b"body"}
            assert told == []


def test_nothing_is_read_of_what_lies_before_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(frame(0))
    files = [frame(number * 2 * size) + frame((number * 2 + 1) * size) for number in range(3)]
    log = log_of(tmp_path, *files)
    read = reads_of(log.descriptors, monkeypatch)
    got = last_in_log_order(log, Selection(begin=2 * size), 9, Events(damage=_fail))
    assert [message.physical_offset for message in got] == [number * size for number in range(2, 6)]
    assert {path for path, _ in read} == {file.path for file in log.files[1:]}
    read.clear()
    got = last_in_log_order(log, Selection(), 2, Events(damage=_fail))
    assert [message.physical_offset for message in got] == [4 * size, 5 * size]
    assert {path for path, _ in read} == {log.files[2].path}


def test_of_a_large_file_little_more_is_read_than_a_start_is_looked_for_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"b" * 50_000
    size, count = len(frame(0, body)), 320
    file_size = size * count + (1 << 20)
    data = b"".join(frame(file_size + number * size, body) for number in range(count))
    log = log_of(tmp_path, frame(0).ljust(file_size, b"\0"), data.ljust(file_size, b"\0"))
    read = reads_of(log.descriptors, monkeypatch)
    [found] = last_in_log_order(log, Selection(), 1, Events(damage=_fail))
    assert found.physical_offset == file_size + (count - 1) * size
    # beside it the end of what is written is looked for, twice
    assert sum(length for _, length in read) < LOOK_BACK + (6 << 20) < len(data)
