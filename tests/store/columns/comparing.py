"""The walk in columns held against the plain walk, message by message and column by column."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rmqctl.formats.checksums import key_hash, tags_code
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.formats.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    TAGS,
    has_queue_slot,
    is_inner_batch,
)
from rmqctl.store.log import column_walk
from rmqctl.store.log.columns import ColumnRecord, MessageColumns
from rmqctl.store.log.walk import Record
from rmqctl.store.native.tables import Columns, NeedsPlain
from rmqctl.store.queues.dispatch import index_keys, unit_tags_code
from tests.store.native.forms import compiled_form, plain_form

FORMS = ("compiled", "plain")
DELAY_LEVELS = [1000, 5000, 10_000]

SAME_NAMES = (
    "physical_offset",
    "queue_offset",
    "born_timestamp",
    "store_timestamp",
    "prepared_transaction_offset",
    "queue_id",
    "flag",
    "sys_flag",
    "body_crc",
    "reconsume_times",
    "born_host_port",
    "store_host_port",
)


def use_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the walk run compiled, or as plain Python."""
    module = plain_form("walk") if form == "plain" else compiled_form("walk")
    monkeypatch.setattr(column_walk, "WindowWalk", module.WindowWalk)


def assert_same(columns: Iterable[ColumnRecord], plain: Iterable[Record]) -> None:
    """Every record of both walks, and every column of every message."""
    expected = iter(plain)
    for record in columns:
        if isinstance(record, MessageColumns):
            assert_same_messages(record, [next(expected) for _ in range(record.rows)])
        else:
            assert record == next(expected)
    assert list(expected) == []


def assert_same_messages(batch: MessageColumns, messages: list[Record]) -> None:
    """All columns that were asked for."""
    good = [message for message in messages if isinstance(message, StoredMessage)]
    assert len(batch) == len(good) == len(messages) > 0
    assert (batch.begin, batch.end) == (good[0].physical_offset, good[-1].end)
    assert batch.size.tolist() == [message.total_size for message in good]
    assert batch.physical_offset.tolist() == [message.physical_offset for message in good]
    if batch.asked & Columns.HEAD:
        for name in SAME_NAMES:
            assert getattr(batch, name).tolist() == [getattr(message, name) for message in good], name
        assert batch.has_queue_slot.tolist() == [has_queue_slot(message.sys_flag) for message in good]
    if batch.asked & Columns.TOPIC:
        assert [batch.topic(row) for row in range(batch.rows)] == [message.topic for message in good]
    if batch.asked & Columns.TAGS:
        _assert_same_tags(batch, good)
    if batch.asked & Columns.KEYS:
        _assert_same_keys(batch, good)
    if batch.asked & Columns.BYTES:
        _assert_same_bytes(batch, good)
    assert [batch.message(row) for row in range(0, batch.rows, 7)] == good[::7]


def _assert_same_keys(batch: MessageColumns, messages: list[StoredMessage]) -> None:
    with_tags = bool(batch.asked & Columns.TAG_KEYS)
    expected = []
    for row, message in enumerate(messages):
        plain = len(index_keys(message))
        for number, key in enumerate(index_keys(message, with_tags=with_tags)):
            expected.append((row, key_hash(message.topic, key), number >= plain))
    columns = batch.key_row.tolist(), batch.key_hash.tolist(), batch.key_is_tag.tolist()
    assert list(zip(*columns, strict=True)) == expected


def _assert_same_tags(batch: MessageColumns, messages: list[StoredMessage]) -> None:
    properties = [message.properties() for message in messages]
    assert batch.tags_code.tolist() == [tags_code(one.get(TAGS)) for one in properties]
    if batch.asked & Columns.HEAD:
        for levels in (DELAY_LEVELS, []):
            codes = [unit_tags_code(one, known, levels) for one, known in zip(messages, properties, strict=True)]
            assert batch.unit_tags_code(levels).tolist() == codes
    expected = [
        (NeedsPlain.INNER_BATCH if is_inner_batch(one.sys_flag) else 0)
        | (NeedsPlain.MULTI_DISPATCH if {INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET} <= set(known) else 0)
        for one, known in zip(messages, properties, strict=True)
    ]
    assert batch.needs_plain.tolist() == expected


def _assert_same_bytes(batch: MessageColumns, messages: list[StoredMessage]) -> None:
    window = batch.window
    assert window is not None
    for row, message in enumerate(messages):
        # the frame as a whole: `diff` takes its digest
        begin = int(batch.born_host_position[row]) - FRAME_HEADS[0].offset("born_host_ip")
        frame = window[begin : begin + message.total_size].tobytes()
        assert decode_message(frame, 0, len(frame), message.physical_offset, unsigned=message.overflows) == message
        assert batch.body(row) == message.body
        assert batch.property_bytes(row) == message.property_bytes
        for host, position, start in (
            (message.born_host_ip, int(batch.born_host_position[row]), int(batch.born_host_start[row])),
            (message.store_host_ip, int(batch.store_host_position[row]), int(batch.store_host_start[row])),
        ):
            assert window[position : position + len(host)].tobytes() == host
            assert start == int.from_bytes(host[:4], "big", signed=True)
