"""Writes formats/layouts.py and docs/formats.md from the schemas; `--check` only looks."""

from __future__ import annotations

import sys
from pathlib import Path

from construct import Construct

from rmqctl.formats import schemas as checkpoint
from rmqctl.formats import schemas as consumequeue
from rmqctl.formats import schemas as dledger
from rmqctl.formats import schemas as ids
from rmqctl.formats import schemas as index
from rmqctl.formats import schemas as message
from rmqctl.formats import schemas as properties
from rmqctl.formats import schemas as rocksdb
from rmqctl.formats import schemas as timer
from rmqctl.formats.layout import Layout
from rmqctl.formats.schemas import derive_field, derive_layout, schema_fields

_HOSTS = ("born_host", "store_host")

FIXED: list[tuple[str, Construct, dict[str, bool]]] = [
    *[
        (f"FRAME_HEAD_{born}{store}", message.message_frame, {"born_host": born == "6", "store_host": store == "6"})
        for store in "46"
        for born in "46"
    ],
    ("BLANK_FRAME", message.blank_frame, {}),
    ("HOST_V4", message.host_v4, {}),
    ("HOST_V6", message.host_v6, {}),
    ("BATCH_ITEM_HEAD", message.batch_item, {}),
    ("PROPERTY_CRC", properties.property_crc, {}),
    ("CONSUMEQUEUE_UNIT", consumequeue.consumequeue_unit, {}),
    ("CONSUMEQUEUE_EXT_UNIT_HEAD", consumequeue.consumequeue_ext_unit, {}),
    ("BATCH_CONSUMEQUEUE_UNIT", consumequeue.batch_consumequeue_unit, {}),
    ("INDEX_HEADER", index.index_header, {}),
    ("INDEX_SLOT", index.index_slot, {}),
    ("INDEX_ENTRY", index.index_entry, {}),
    ("TIERED_INDEX_HEADER", index.tiered_index_header, {}),
    ("TIERED_INDEX_SLOT", index.tiered_index_slot, {}),
    ("TIERED_INDEX_ITEM", index.tiered_index_item, {}),
    ("LOCAL_TIERED_INDEX_SLOT", index.local_tiered_index_slot, {}),
    ("LOCAL_TIERED_INDEX_ITEM", index.local_tiered_index_item, {}),
    ("CHECKPOINT", checkpoint.checkpoint_values, {}),
    ("TIMER_CHECKPOINT", timer.timer_checkpoint, {}),
    ("TIMER_WHEEL_SLOT", timer.timer_wheel_slot, {}),
    ("TIMER_LOG_UNIT", timer.timer_log_unit, {}),
    ("DLEDGER_ENTRY_HEAD", dledger.dledger_entry_head, {}),
    ("DLEDGER_INDEX_UNIT", dledger.dledger_index_unit, {}),
    ("ROCKSDB_RECORD", rocksdb.rocksdb_record, {}),
    ("ROCKSDB_BATCH", rocksdb.rocksdb_batch, {}),
    ("ROCKSDB_BLOCK_TRAILER", rocksdb.rocksdb_block_trailer, {}),
    ("ROCKSDB_FOOTER", rocksdb.rocksdb_footer, {}),
    ("ROCKSDB_QUEUE_UNIT", rocksdb.rocksdb_queue_unit, {}),
    ("ROCKSDB_QUEUE_END", rocksdb.rocksdb_queue_end, {}),
    ("ROCKSDB_TIMER", rocksdb.rocksdb_timer, {}),
    ("ROCKSDB_TRANSACTION", rocksdb.rocksdb_transaction, {}),
    ("OFFSET_MESSAGE_ID_V4", ids.offset_message_id_v4, {}),
    ("OFFSET_MESSAGE_ID_V6", ids.offset_message_id_v6, {}),
    ("UNIQUE_ID_V4", ids.unique_id_v4, {}),
    ("UNIQUE_ID_V6", ids.unique_id_v6, {}),
]

# name, schema, field behind variable bytes, choices
LENGTHS: list[tuple[str, Construct, str, dict[str, bool]]] = [
    ("TOPIC_LENGTH_V1", message.message_frame, "topic_length", {"topic_length": False}),
    ("TOPIC_LENGTH_V2", message.message_frame, "topic_length", {"topic_length": True}),
    ("PROPERTIES_LENGTH", message.message_frame, "properties_length", {}),
    ("BATCH_ITEM_PROPERTIES_LENGTH", message.batch_item, "properties_length", {}),
]

DOCUMENTED: list[tuple[str, str, Construct]] = [
    ("Commitlog frame", "`commitlog/<offset>`, messages back to back", message.message_frame),
    ("Blank frame", "fills a commitlog file to its end", message.blank_frame),
    ("Batch item", "one inner message in the body of an inner batch", message.batch_item),
    ("Property", "one entry of the property string", properties.property_entry),
    ("Frame checksum", "the last property of a frame written with `enabledAppendPropCRC`", properties.property_crc),
    ("Consumequeue unit", "`consumequeue/<topic>/<queue>/<offset>`", consumequeue.consumequeue_unit),
    ("Consumequeue ext unit", "`consumequeue_ext/<topic>/<queue>/<offset>`", consumequeue.consumequeue_ext_unit),
    ("Batch consumequeue unit", "`batchconsumequeue/<topic>/<queue>/<offset>`", consumequeue.batch_consumequeue_unit),
    ("Index header", "first bytes of `index/<time of creation>`", index.index_header),
    ("Index slot", "the hash slots behind the header", index.index_slot),
    ("Index entry", "the entries behind the slots", index.index_entry),
    ("Checkpoint", "`checkpoint`", checkpoint.checkpoint_values),
    ("Timer checkpoint", "`config/timercheck`", timer.timer_checkpoint),
    ("Timer wheel slot", "`timerwheel`, or a snapshot of it, `timerwheel.<position>`", timer.timer_wheel_slot),
    ("Timer log unit", "`timerlog/<offset>`", timer.timer_log_unit),
    ("DLedger entry head", "`dledger-<id>/data/<offset>`, before each frame", dledger.dledger_entry_head),
    ("DLedger index unit", "`dledger-<id>/index/<offset>`, unit n at byte 32 n", dledger.dledger_index_unit),
    ("RocksDB queue unit", "value in the family `default` of a database of queues", rocksdb.rocksdb_queue_unit),
    ("RocksDB queue end", "value in the family `offset` of a database of queues", rocksdb.rocksdb_queue_end),
    ("Offset message id", "32 hex digits; 56 with an IPv6 address of 16 bytes", ids.offset_message_id_v4),
    ("Unique id", "property UNIQ_KEY, 32 hex digits; 56 with an IPv6 address", ids.unique_id_v4),
]

# what is a key of a database, or JSON, and has no fixed layout
_ROWS = """
## Rows of RocksDB

Numbers in keys are i64.

| folder, family | key | value |
|---|---|---|
| `consumequeue*/`, `default` | i32 length, 01, topic, 01, i32 queue, 01, offset | queue unit |
| the same, `offset` | i32 length, 01, topic, 01, `max` or `min`, 01, i32 queue | queue end |
| `rocksdbstore/`, `default` | hour in ms, `@topic@K@key@unique key@` (T: tags; U: none), offset | store time |
| the same, `timer` | due time, unique key | i32 size, offset |
| the same, `trans` | offset of the half message, `@topic@unique key` | i32 times asked, i32 size |
| `kvStore/`, `popState` | deadline, `group@topic@`, i32 queue, `@`, offset | JSON |
| `config/topics/` and the like | name, or `topic@group` | JSON of the entry |
| `config/rdb/` | 01, i16 table, 02, i16 length, name | 01, JSON; offset |

## POP records

JSON bodies in `rmq_sys_REVIVE_LOG_<cluster>`, and until they are due in the timer's topic. The tag names the kind.

| tag | fields |
|---|---|
| `ck` | `t` topic, `c` group, `q` queue, `so` first offset, `d` distances, `pt` pop time, `it` invisible ms |
| `ack`, `bAck` | `t`, `c`, `q`, `so`, `pt` of the checkpoint; `ao` offset, `aol` offsets |
"""

ROOT = Path(__file__).resolve().parent.parent


def layouts_source() -> str:
    """The text of formats/layouts.py."""
    lines = [
        '"""Fixed layouts. Generated from formats/schemas.py by `python -m rmqctl.formats.generate`: do not edit."""',
        "",
        "from rmqctl.formats.layout import Layout",
        "",
    ]
    layouts: list[Layout] = [derive_layout(name, schema, choices) for name, schema, choices in FIXED]
    layouts += [derive_field(name, schema, field, choices) for name, schema, field, choices in LENGTHS]
    for layout in layouts:
        lines += [f"{layout.name} = Layout(", f'    "{layout.name}",', "    ("]
        lines += [f'        ("{field}", "{code}", {offset}, {size}),' for field, code, offset, size in layout.fields]
        lines += ["    ),", ")"] if layout.order == ">" else ["    ),", f'    "{layout.order}",', ")"]
    lines += [
        "# by sys_flag: bit 0x10 (born host IPv6) + bit 0x20 (store host IPv6), shifted down by four",
        "FRAME_HEADS = (FRAME_HEAD_44, FRAME_HEAD_64, FRAME_HEAD_46, FRAME_HEAD_66)",
        f"MESSAGE_MAGIC_V1 = 0x{message.MESSAGE_MAGIC_V1:X}",
        f"MESSAGE_MAGIC_V2 = 0x{message.MESSAGE_MAGIC_V2:X}",
        f"BLANK_MAGIC = 0x{message.BLANK_MAGIC:X}",
        f"DLEDGER_MAGIC = {dledger.DLEDGER_MAGIC}",
        f"TIERED_INDEX_MAGIC = 0x{index.TIERED_INDEX_MAGIC:X}",
        f"TIERED_INDEX_OPEN = 0x{index.TIERED_INDEX_OPEN:X}",
        f"CHECKPOINT_SIZE = {checkpoint.CHECKPOINT_SIZE}",
        f"TIMER_CHECKPOINT_SIZE = {timer.TIMER_CHECKPOINT_SIZE}",
        f"TIMER_WHEEL_SLOTS = {timer.TIMER_WHEEL_SLOTS}",
        "# MessageSysFlag",
    ]
    lines += [f"SYS_FLAG_{name.upper()} = 0x{mask:X}" for name, mask in message.SYS_FLAG_BITS.items()]
    lines += [
        f"TRANSACTION_MASK = 0x{message.TRANSACTION_MASK:X}",
        f"COMPRESSION_SHIFT = {message.COMPRESSION_SHIFT}",
        f"COMPRESSION_MASK = 0x{message.COMPRESSION_MASK:X}",
        "",
    ]
    return "\n".join(lines)


def formats_document() -> str:
    """The text of docs/formats.md."""
    lines = [
        "# What the bytes mean",
        "",
        "Generated from `formats/schemas.py` by `make docs`. "
        "All integers are big-endian and signed unless said otherwise.",
        "An offset is given as long as everything before the field has a fixed size (IPv4 hosts).",
    ]
    for title, place, schema in DOCUMENTED:
        lines += ["", f"## {title}", "", f"{place}.", "", "| offset | size | field | meaning |", "|---|---|---|---|"]
        offset: int | None = 0
        for field in schema_fields(schema, dict.fromkeys(_HOSTS, False)):
            at = "" if offset is None else str(offset)
            size = str(field.size) if field.size is not None else field.type_name.replace(" bytes", "")
            lines.append(f"| {at} | {size} | `{field.name}` | {field.doc} |")
            offset = None if offset is None or field.size is None else offset + field.size
    return "\n".join([*lines, _ROWS])


def main(arguments: list[str]) -> int:
    """Write the generated files, or with `--check` return 1 if one of them is stale."""
    stale = []
    for name, text in (("formats/layouts.py", layouts_source()), ("docs/formats.md", formats_document())):
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        sys.stderr.write("stale, run `make docs`: " + ", ".join(str(path.relative_to(ROOT)) for path in stale) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
