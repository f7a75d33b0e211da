"""The schemas against the layouts that RocketMQ's sources define: offsets and sizes are written out here once more."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import construct
import numpy
import pytest
from construct import Bytes, Construct, Int8sb, Int16ub, Int32sb, Struct, this

from rmqctl.formats import layouts
from rmqctl.formats import schemas as checkpoint
from rmqctl.formats import schemas as consumequeue
from rmqctl.formats import schemas as index
from rmqctl.formats import schemas as message
from rmqctl.formats.layout import Layout
from rmqctl.formats.message import FrameHead, frame_head
from rmqctl.formats.schemas import explain
from tests.generated import layouts as generate
from tests.generated.layouts import (
    FIXED,
    LENGTHS,
    ROOT,
    derive_field,
    derive_layout,
    formats_document,
    layouts_source,
    main,
)

# name of the layout -> (field, byte offset) of every field, and the size of the whole
EXPECTED: dict[str, tuple[dict[str, int], int]] = {
    "FRAME_HEAD_44": (
        {
            "total_size": 0,
            "magic_code": 4,
            "body_crc": 8,
            "queue_id": 12,
            "flag": 16,
            "queue_offset": 20,
            "physical_offset": 28,
            "sys_flag": 36,
            "born_timestamp": 40,
            "born_host_ip": 48,
            "born_host_port": 52,
            "store_timestamp": 56,
            "store_host_ip": 64,
            "store_host_port": 68,
            "reconsume_times": 72,
            "prepared_transaction_offset": 76,
            "body_length": 84,
        },
        88,
    ),
    "BLANK_FRAME": ({"total_size": 0, "magic_code": 4}, 8),
    "HOST_V4": ({"ip": 0, "port": 4}, 8),
    "HOST_V6": ({"ip": 0, "port": 16}, 20),
    "BATCH_ITEM_HEAD": ({"item_size": 0, "magic_code": 4, "body_crc": 8, "flag": 12, "body_length": 16}, 20),
    "CONSUMEQUEUE_UNIT": ({"physical_offset": 0, "size": 8, "tags_code": 12}, 20),
    "CONSUMEQUEUE_EXT_UNIT_HEAD": ({"size": 0, "tags_code": 2, "store_timestamp": 10, "bit_map_size": 18}, 20),
    "TIERED_INDEX_HEADER": (
        {"magic_code": 0, "begin_timestamp": 4, "end_timestamp": 12, "slot_count": 20, "item_count": 24},
        28,
    ),
    "TIERED_INDEX_SLOT": ({"position": 0, "size": 4}, 8),
    "TIERED_INDEX_ITEM": (
        {"key_hash": 0, "topic_id": 4, "queue_id": 8, "segment_offset": 12, "size": 20, "time_difference": 24},
        28,
    ),
    "LOCAL_TIERED_INDEX_SLOT": ({"item": 0, "unused": 4}, 8),
    "LOCAL_TIERED_INDEX_ITEM": (
        {
            "key_hash": 0,
            "topic_id": 4,
            "queue_id": 8,
            "segment_offset": 12,
            "size": 20,
            "time_difference": 24,
            "previous_item": 28,
        },
        32,
    ),
    "DLEDGER_ENTRY_HEAD": (
        {
            "magic_code": 0,
            "size": 4,
            "entry_index": 8,
            "term": 16,
            "pos": 24,
            "channel": 32,
            "chain_crc": 36,
            "body_crc": 40,
            "body_size": 44,
        },
        48,
    ),
    "DLEDGER_INDEX_UNIT": ({"magic_code": 0, "pos": 4, "size": 12, "entry_index": 16, "term": 24}, 32),
    "BATCH_CONSUMEQUEUE_UNIT": (
        {
            "physical_offset": 0,
            "size": 8,
            "tags_code": 12,
            "store_timestamp": 20,
            "base_queue_offset": 28,
            "batch_size": 36,
            "compacted_offset": 38,
            "reserved": 42,
        },
        46,
    ),
    "INDEX_HEADER": (
        {
            "begin_timestamp": 0,
            "end_timestamp": 8,
            "begin_physical_offset": 16,
            "end_physical_offset": 24,
            "hash_slot_count": 32,
            "index_count": 36,
        },
        40,
    ),
    "INDEX_SLOT": ({"entry": 0}, 4),
    "INDEX_ENTRY": ({"key_hash": 0, "physical_offset": 4, "time_difference": 12, "previous_entry": 16}, 20),
    "TIMER_CHECKPOINT": (
        {
            "last_read_time_ms": 0,
            "last_timer_log_flush_pos": 8,
            "last_timer_queue_offset": 16,
            "master_timer_queue_offset": 24,
            "state_version": 32,
            "timestamp": 40,
            "counter": 48,
        },
        56,
    ),
    "TIMER_WHEEL_SLOT": ({"time": 0, "first_pos": 8, "last_pos": 16, "num": 24, "magic": 28}, 32),
    "TIMER_LOG_UNIT": (
        {
            "size": 0,
            "previous_pos": 4,
            "magic": 12,
            "write_time": 16,
            "delay": 24,
            "physical_offset": 28,
            "message_size": 36,
            "topic_hash": 40,
            "reserved": 44,
        },
        52,
    ),
    "CHECKPOINT": (
        {
            "physic_msg_timestamp": 0,
            "logics_msg_timestamp": 8,
            "index_msg_timestamp": 16,
            "master_flushed_offset": 24,
            "confirm_physical_offset": 32,
            "logics_physical_offset": 40,
        },
        48,
    ),
    "PROPERTY_CRC": ({"name": 0, "name_separator": 8, "digits": 9, "property_separator": 19}, 20),
    "OFFSET_MESSAGE_ID_V4": ({"ip": 0, "port": 4, "physical_offset": 8}, 16),
    "OFFSET_MESSAGE_ID_V6": ({"ip": 0, "port": 16, "physical_offset": 20}, 28),
    "UNIQUE_ID_V4": ({"ip": 0, "process_id": 4, "class_loader_hash": 6, "time_difference": 10, "counter": 14}, 16),
    "UNIQUE_ID_V6": ({"ip": 0, "process_id": 16, "class_loader_hash": 18, "time_difference": 22, "counter": 26}, 28),
    "ROCKSDB_RECORD": ({"checksum": 0, "size": 4, "type": 6}, 7),
    "ROCKSDB_BATCH": ({"sequence": 0, "count": 8}, 12),
    "ROCKSDB_BLOCK_TRAILER": ({"compression": 0, "checksum": 1}, 5),
    "ROCKSDB_FOOTER": ({"checksum_type": 0, "handles": 1, "format_version": 41, "magic": 45}, 53),
    "ROCKSDB_QUEUE_UNIT": ({"physical_offset": 0, "size": 8, "tags_code": 12, "store_timestamp": 20}, 28),
    "ROCKSDB_QUEUE_END": ({"physical_offset": 0, "queue_offset": 8}, 16),
    "ROCKSDB_TIMER": ({"size": 0, "physical_offset": 4}, 12),
    "ROCKSDB_TRANSACTION": ({"checks": 0, "size": 4}, 8),
    "TOPIC_LENGTH_V1": ({"topic_length": 0}, 1),
    "TOPIC_LENGTH_V2": ({"topic_length": 0}, 2),
    "PROPERTIES_LENGTH": ({"properties_length": 0}, 2),
    "BATCH_ITEM_PROPERTIES_LENGTH": ({"properties_length": 0}, 2),
}


def named(name: str) -> Layout:
    layout = getattr(layouts, name)
    assert isinstance(layout, Layout)
    return layout


@pytest.mark.parametrize("name", EXPECTED)
def test_offsets_and_size(name: str) -> None:
    fields, size = EXPECTED[name]
    layout = named(name)
    assert {field: layout.offset(field) for field, _, _, _ in layout.fields} == fields
    assert (layout.size, layout.struct.size) == (size, size)


def test_every_layout_is_in_the_table_above() -> None:
    all_names = {name for name, *_ in FIXED} | {name for name, *_ in LENGTHS}
    assert all_names - EXPECTED.keys() == {"FRAME_HEAD_64", "FRAME_HEAD_46", "FRAME_HEAD_66"}


@pytest.mark.parametrize(
    ("name", "born", "store", "size"),
    [("FRAME_HEAD_64", 20, 8, 100), ("FRAME_HEAD_46", 8, 20, 100), ("FRAME_HEAD_66", 20, 20, 112)],
)
def test_heads_with_ipv6_hosts(name: str, born: int, store: int, size: int) -> None:
    layout = named(name)
    assert layout.size == size
    assert layout.offset("born_host_ip") == 48
    assert layout.offset("store_timestamp") == 48 + born
    assert layout.offset("store_host_ip") == 56 + born
    assert layout.offset("reconsume_times") == 56 + born + store
    assert layout.offset("body_length") == 68 + born + store


def test_heads_are_found_by_the_host_bits_of_the_sys_flag() -> None:
    heads = [layouts.FRAME_HEADS[flag >> 4 & 3] for flag in (0, 0x10, 0x20, 0x30)]
    assert [head.name for head in heads] == ["FRAME_HEAD_44", "FRAME_HEAD_64", "FRAME_HEAD_46", "FRAME_HEAD_66"]


@pytest.mark.parametrize("hosts", range(4))
def test_heads_are_read_by_name(hosts: int) -> None:
    layout = layouts.FRAME_HEADS[hosts]
    assert tuple(name for name, *_ in layout.fields) == FrameHead._fields
    number_of = {name: number for number, name in enumerate(FrameHead._fields, 1)}
    values = [
        bytes([number_of[name]]) * size if code.endswith("s") else number_of[name]
        for name, code, _, size in layout.fields
    ]
    values[FrameHead._fields.index("sys_flag")] = hosts << 4
    values[FrameHead._fields.index("magic_code")] = layouts.MESSAGE_MAGIC_V2
    packed = b"before" + layout.struct.pack(*values)
    head = frame_head(packed + b"behind", 6)
    assert head == tuple(values)
    assert head is not None
    assert (head.size, head.is_message) == (layout.size, True)
    assert frame_head(packed, 6) == head
    assert frame_head(packed[:-1], 6) is None
    assert not head._replace(magic_code=layouts.BLANK_MAGIC).is_message


def test_constants() -> None:
    assert layouts.MESSAGE_MAGIC_V1 - (1 << 32) == -626843481
    assert layouts.MESSAGE_MAGIC_V2 - (1 << 32) == -626843477
    assert layouts.BLANK_MAGIC - (1 << 32) == -875286124
    assert layouts.CHECKPOINT_SIZE == 4096
    assert checkpoint.checkpoint.sizeof() == 4096
    flags = (
        layouts.SYS_FLAG_COMPRESSED,
        layouts.SYS_FLAG_MULTI_TAGS,
        layouts.SYS_FLAG_BORN_HOST_V6,
        layouts.SYS_FLAG_STORE_HOST_V6,
        layouts.SYS_FLAG_NEED_UNWRAP,
        layouts.SYS_FLAG_INNER_BATCH,
    )
    assert flags == (0x1, 0x2, 0x10, 0x20, 0x40, 0x80)
    assert (layouts.TRANSACTION_MASK, layouts.COMPRESSION_MASK, layouts.COMPRESSION_SHIFT) == (0xC, 0x700, 8)


def test_unknown_fields_are_named() -> None:
    with pytest.raises(KeyError, match="nothing"):
        layouts.INDEX_ENTRY.offset("nothing")
    with pytest.raises(KeyError, match="topic"):
        derive_field("X", message.message_frame, "topic")


SAMPLES: list[tuple[Construct, Layout]] = [
    (consumequeue.consumequeue_unit, layouts.CONSUMEQUEUE_UNIT),
    (consumequeue.batch_consumequeue_unit, layouts.BATCH_CONSUMEQUEUE_UNIT),
    (index.index_header, layouts.INDEX_HEADER),
    (index.index_entry, layouts.INDEX_ENTRY),
    (checkpoint.checkpoint_values, layouts.CHECKPOINT),
    (message.blank_frame, layouts.BLANK_FRAME),
]


@pytest.mark.parametrize(("schema", "layout"), SAMPLES, ids=lambda item: getattr(item, "name", None) or "schema")
def test_construct_struct_and_numpy_read_the_same(schema: Construct, layout: Layout) -> None:
    data = bytes((0x81 + 37 * number) & 0xFF for number in range(layout.size))
    parsed = schema.parse(data)
    by_schema = {field: parsed[field] for field, _, _, _ in layout.fields}
    by_struct = dict(zip(by_schema, layout.unpack_from(data, 0), strict=True))
    array = numpy.frombuffer(data, layout.dtype())
    by_numpy = {field: int(array[field][0]) for field in by_schema}
    assert by_schema == by_struct == by_numpy
    assert layout.struct.pack(*by_struct.values()) == data == schema.build(parsed)


def test_numpy_sees_a_row_of_units() -> None:
    data = b"".join(layouts.CONSUMEQUEUE_UNIT.struct.pack(number, -number, 1 - (1 << 63)) for number in range(50))
    array = numpy.frombuffer(data, layouts.CONSUMEQUEUE_UNIT.dtype())
    assert array["physical_offset"].tolist() == list(range(50))
    assert array["size"].tolist() == [-number for number in range(50)]
    assert set(array["tags_code"].tolist()) == {1 - (1 << 63)}


def test_struct_text_is_big_endian_without_padding() -> None:
    assert layouts.BATCH_CONSUMEQUEUE_UNIT.struct.format == ">qiqqqhii"
    assert layouts.UNIQUE_ID_V4.struct.format == ">4sHiiH"


def test_signedness_follows_the_schema() -> None:
    schema = Struct("a" / Int8sb, "b" / Int16ub, "c" / Bytes(3), "d" / Bytes(this.a))
    layout = derive_layout("X", schema)
    assert layout.fields == (("a", "b", 0, 1), ("b", "H", 1, 2), ("c", "3s", 3, 3))
    assert layout.unpack_from(b"\xff\xff\xffabc", 0) == (-1, 65535, b"abc")


def test_conditions_need_an_answer() -> None:
    names = [field for field, _, _, _ in derive_layout("X", message.message_frame).fields]
    assert names[-1] == "born_timestamp", "the layout ends where the size is not fixed any more"


def test_generated_files_are_up_to_date() -> None:
    assert (ROOT / "formats" / "layouts.py").read_text(encoding="utf-8") == layouts_source()
    assert (ROOT / "docs" / "formats.md").read_text(encoding="utf-8") == formats_document()
    assert main(["--check"]) == 0


def test_a_layout_that_is_not_as_large_as_its_schema_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Struct("number" / Int32sb)
    [field] = generate.schema_fields(schema, None)
    assert derive_layout("number", schema).size == 4
    monkeypatch.setattr(generate, "schema_fields", lambda *_: [field._replace(size=5)])
    with pytest.raises(AssertionError, match="struct says 4 bytes, the schema 5"):
        derive_layout("number", schema)


def test_what_is_stale_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    for missing in ("formats/layouts.py", "docs/formats.md"):
        assert main(["--check"]) == 1
        assert main([]) == 0
        assert main(["--check"]) == 0
        (tmp_path / missing).unlink()


def test_every_field_is_documented() -> None:
    def fields(schema: Any) -> Any:
        return [member for member in schema.subcons if member.name]

    for schema in (
        message.message_frame,
        message.blank_frame,
        message.batch_item,
        consumequeue.consumequeue_unit,
        consumequeue.consumequeue_ext_unit,
        consumequeue.batch_consumequeue_unit,
        index.index_header,
        index.index_slot,
        index.index_entry,
        checkpoint.checkpoint_values,
    ):
        assert all(str(member.docs).strip() for member in fields(schema))


def test_explain_gives_every_field_with_its_place() -> None:
    data = layouts.INDEX_ENTRY.struct.pack(7, 1 << 40, -1, 3)
    found, problem = explain(index.index_entry, data)
    assert problem is None
    assert [(field.name, field.offset, field.size, field.value) for field in found] == [
        ("key_hash", 0, 4, 7),
        ("physical_offset", 4, 8, 1 << 40),
        ("time_difference", 12, 4, -1),
        ("previous_entry", 16, 4, 3),
    ]
    assert all(field.doc for field in found)


@pytest.mark.parametrize("length", range(20))
def test_explain_keeps_what_was_read_before_the_damage(length: int) -> None:
    found, problem = explain(index.index_entry, bytes(length))
    assert problem is not None
    whole = sum(length >= end for end in (4, 12, 16))
    assert [field.name for field in found] == ["key_hash", "physical_offset", "time_difference"][:whole]


def test_explain_survives_wild_lengths() -> None:
    wild = Struct("length" / Int32sb, "data" / Bytes(this.length))
    for length in (-1, 0x7FFFFFFF):
        found, problem = explain(wild, struct.pack(">i", length) + b"abc")
        assert [field.name for field in found] == ["length"]
        assert problem is not None
        assert problem.startswith("data")
    assert issubclass(construct.StreamError, construct.ConstructError)
