"""Rows judged, told apart by queue and written as frames: compiled and plain do the same, whatever the numbers are."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.layouts import TOPIC_LENGTH_V1
from rmqctl.formats.message import Host, Message, frame_bytes, prepare_frame
from rmqctl.formats.properties import encode_properties
from rmqctl.store.native import is_compiled
from rmqctl.store.native.tables import Frame, FrameSpan
from tests.store.native.forms import plain_form

_INT = st.one_of(st.sampled_from([0, 0x7FFFFFFF, -0x80000000]), st.integers(-(1 << 31), (1 << 31) - 1))
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_ROW = st.tuples(
    st.sampled_from(["T", "Topic", "t" * 127]),
    st.binary(max_size=30),
    st.dictionaries(st.sampled_from(["KEYS", "TAGS", "a"]), st.text("ab é", min_size=1, max_size=8), max_size=3),
    st.tuples(_INT, _INT, _INT, _LONG, _LONG, _LONG, _LONG),
)


def forms() -> list[Any]:
    """Both forms; the plain one alone where nothing is compiled."""
    return [plain_form("bulk"), *([importlib.import_module("rmqctl.store.native.bulk")] if is_compiled() else [])]


_HOSTS = [Host(b"\x7f\0\0\x01", 10911), Host(b"\xff\xff\xff\xff", -1)]


def _source(rows: list[Any]) -> tuple[list[Any], list[bytes]]:
    """What the frames are written from, and the frames."""
    columns = np.zeros((len(Frame), len(rows)), np.int64)
    starts, ends = np.zeros((len(FrameSpan), len(rows)), np.int64), np.zeros((len(FrameSpan), len(rows)), np.int64)
    topics = sorted({row[0] for row in rows})
    fields = [TOPIC_LENGTH_V1.struct.pack(len(topic)) + topic.encode() for topic in topics]
    bodies = properties = b""
    frames: list[bytes] = []
    at = 1 << 40
    for number, (topic, body, named, (queue, flag, again, offset, born, stored, prepared)) in enumerate(rows):
        message = Message(
            topic, body, queue, flag, named, born_host=_HOSTS[1], reconsume_times=again,
            prepared_transaction_offset=prepared,
        )  # fmt: skip
        parts = prepare_frame(message, _HOSTS[0], born)
        frames.append(frame_bytes(parts, offset, at, stored))
        at += parts.total_size
        text = encode_properties(named)
        starts[:, number] = len(bodies), len(properties)
        bodies, properties = bodies + body, properties + text
        ends[:, number] = len(bodies), len(properties)
        values = {
            Frame.SIZE: parts.total_size, Frame.QUEUE_ID: queue, Frame.FLAG: flag, Frame.QUEUE_OFFSET: offset,
            Frame.BORN_TIMESTAMP: born, Frame.BORN_HOST: 1, Frame.RECONSUME_TIMES: again, Frame.PREPARED: prepared,
            Frame.TOPIC: topics.index(topic), Frame.STORE_TIMESTAMP: stored, Frame.STORE_HOST: 0,
        }  # fmt: skip
        for name, value in values.items():
            columns[name, number] = value
    hosts = np.frombuffer(b"".join(host.ip + host.port.to_bytes(4, "big", signed=True) for host in _HOSTS), ">i8")
    places = np.cumsum([0, *map(len, fields)]).astype(np.int64)
    return [columns, hosts.astype(np.int64), starts, ends, bodies, properties, b"".join(fields), places], frames


@given(st.lists(_ROW, min_size=1, max_size=6))
def test_frames_are_those_of_frame_bytes(rows: list[Any]) -> None:
    source, frames = _source(rows)
    wanted = b"".join(frames)
    for form in forms():
        target = np.zeros(len(wanted) + 9, np.uint8)
        form.write_frames(target, 1 << 40, *source, 0, len(rows))
        hidden = target.tobytes()
        at = 0
        for frame in frames:
            assert hidden[at : at + 8] == bytes(8)
            at += len(frame)
        form.write_first_bytes(target, source[0], 0, len(rows))
        assert target.tobytes() == wanted + bytes(9)
        form.write_frames(target, (1 << 40) + len(frames[0]), *source, 1, len(rows))
        form.write_first_bytes(target, source[0], 1, len(rows))
        assert target.tobytes()[: len(wanted) - len(frames[0])] == wanted[len(frames[0]) :]


def test_what_does_not_fit_is_refused() -> None:
    source, frames = _source([("T", b"body", {"KEYS": "k"}, (0,) * 7)])
    for form in forms():
        with pytest.raises(IndexError):
            form.write_frames(np.zeros(len(frames[0]) - 1, np.uint8), 0, *source, 0, 1)
        with pytest.raises(IndexError):
            form.write_frames(np.zeros(200, np.uint8), 0, *source, 0, 2)
        for at, value in ((2, 9), (3, 99), (3, -99)):  # starts, ends
            wrong = [*source]
            wrong[at] = source[at] + value
            with pytest.raises(IndexError):
                form.write_frames(np.zeros(400, np.uint8), 0, *wrong, 0, 1)


def after(call: Callable[[], Any], *changed: Any) -> Any:
    """How a call ended, and what it left in arrays."""
    try:
        answer = call()
    except IndexError as error:
        answer = type(error)
    return answer, [array.tolist() for array in changed]


# numbers that lead out of arrays, or over the ends of fields
_ANY = st.sampled_from([0, 1, 2, 3, -1, -2, 100, 1 << 31, -(1 << 63), (1 << 63) - 1]) | st.integers(0, 130)


@given(st.lists(_ROW, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 6), _ANY, _ANY), max_size=4), _ANY)
def test_numbers_of_any_kind_give_the_same_and_end_nothing(
    rows: list[Any], changes: list[tuple[int, int, int]], end: int
) -> None:
    """Tables whose numbers are not what they should be: refused by both at the same place, or written alike."""
    (columns, hosts, starts, ends, bodies, properties, topics, places), frames = _source(rows)
    for which, at, value in changes:
        table = (columns[Frame.SIZE], columns[Frame.TOPIC], columns[Frame.BORN_HOST], *starts, *ends)[which]
        table[at % len(table)] = value
    found = []
    for form in forms():
        target = np.zeros(len(b"".join(frames)), np.uint8)
        source = columns, hosts, starts, ends, bodies, properties, topics, places, 0, min(end, len(rows))
        written = after(partial(form.write_frames, target, 1000, *source))
        shown = after(partial(form.write_first_bytes, target, columns, 0, end))
        found.append((written, shown, target.tobytes()))
    assert found[0] == found[-1]


_LIMIT = 1 << 31
_NO_TIME, _TIMES_END, _UNUSUAL_FLAGS = -(1 << 63), 253_402_300_800_000, 0x3C
_LIMITS: list[tuple[str, int, bool]] = [
    *((name, value, True) for name in ("FLAG", "RECONSUME_TIMES") for value in (-_LIMIT, _LIMIT - 1)),
    *((name, value, False) for name in ("FLAG", "RECONSUME_TIMES") for value in (-_LIMIT - 1, _LIMIT)),
    *(("QUEUE_ID", value, 0 <= value < _LIMIT) for value in (-_LIMIT, -1, 0, _LIMIT - 1, _LIMIT)),
    *(("SYS_FLAG", value, True) for value in (0, 1, 2, 0x700, -_LIMIT)),
    *(("SYS_FLAG", value, False) for value in (4, 8, 12, 0x10, 0x20, _LIMIT, -2 * _LIMIT)),
    *(("STORE_TIMESTAMP", value, True) for value in (_NO_TIME, 0, _TIMES_END - 1)),
    *(("STORE_TIMESTAMP", value, False) for value in (_NO_TIME + 1, -1, _TIMES_END)),
    *(("TOPIC", value, value < 2) for value in range(3)),
    *(("BODY", value, value <= 100) for value in (0, 100, 101)),
    *(("PROPERTIES", value, value <= 32767) for value in (0, 32767, 32768)),
]
_TOPIC_SIZES = np.array([1, 127, 128])


def _judged(form: Any, tables: list[Any], file_size: int = 100_000, held: int = 40_000) -> Any:
    columns, starts, ends = (table.copy() for table in tables)
    usual = np.ones(columns.shape[1], np.bool_)
    answer = after(
        lambda: form.judge_rows(
            columns, starts, ends, held, held, _TOPIC_SIZES, usual.view(np.uint8), 100, file_size, 127,
            _UNUSUAL_FLAGS, _TIMES_END,
        ), columns, usual,
    )  # fmt: skip
    return answer, usual.tolist(), columns[Frame.SIZE].tolist()


def _tables(count: int) -> list[Any]:
    columns = np.zeros((len(Frame), count), np.int64)
    columns[Frame.STORE_TIMESTAMP] = _NO_TIME
    return [columns, np.zeros((len(FrameSpan), count), np.int64), np.full((len(FrameSpan), count), 5, np.int64)]


def test_rows_are_usual_up_to_each_limit_and_no_further() -> None:
    tables = _tables(len(_LIMITS))
    for row, (name, value, _) in enumerate(_LIMITS):
        if name in FrameSpan.__members__:
            tables[2][FrameSpan[name], row] = value
        else:
            tables[0][Frame[name], row] = value
    for form in forms():
        _, usual, sizes = _judged(form, tables)
        assert usual == [is_usual for _, _, is_usual in _LIMITS]
        assert sizes[0] == 91 + 1 + 5 + 5
        for file_size, is_usual in ((sizes[0] + 8, True), (sizes[0] + 7, False)):
            assert _judged(form, _tables(1), file_size)[1] == [is_usual]


@given(
    st.lists(st.tuples(st.integers(0, len(Frame) + 3), _ANY), min_size=1, max_size=9), st.sampled_from([300, 40_000])
)
def test_both_judge_alike(changes: list[tuple[int, int]], file_size: int) -> None:
    tables = _tables(len(changes))
    for row, (which, value) in enumerate(changes):
        (*tables[0], *tables[1], *tables[2])[which][row] = value
    found = [_judged(form, tables, file_size) for form in forms()]
    assert found[0] == found[-1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 3)), min_size=1))
def test_queues_are_numbered_as_a_dict_does(pairs: list[tuple[int, int]]) -> None:
    columns = np.zeros((len(Frame), len(pairs)), np.int64)
    columns[Frame.TOPIC], columns[Frame.QUEUE_ID] = zip(*pairs, strict=True)
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    for form in forms():
        first_rows, queues = np.full(len(pairs), -1), np.full(len(pairs), -1)
        slots = np.full(1 << (2 * len(pairs)).bit_length(), -1)
        assert form.number_queues(columns, slots, first_rows, queues) == len(numbers)
        assert queues.tolist() == [numbers[pair] for pair in pairs]
        assert first_rows[: len(numbers)].tolist() == [pairs.index(pair) for pair in numbers]
        next_offsets, offsets = np.arange(len(numbers)) * 100, np.full(len(pairs), -1)
        form.give_offsets(queues, next_offsets, offsets, 1, len(pairs))
        seen = dict.fromkeys(pairs, 0)
        wanted = [-1]
        for pair in pairs[1:]:
            wanted.append(numbers[pair] * 100 + seen[pair])
            seen[pair] += 1
        assert offsets.tolist() == wanted
        assert next_offsets.tolist() == [number * 100 + seen[pair] for pair, number in numbers.items()]


def test_queues_that_are_not_there_get_no_offsets() -> None:
    for form in forms():
        for queue in (-1, 2):
            offsets = np.zeros(1, np.int64)
            with pytest.raises(IndexError):
                form.give_offsets(np.array([queue]), np.array([7, 8]), offsets, 0, 1)
            assert offsets.tolist() == [0]
