"""Writes formats/layouts.py and docs/formats.md from the schemas; `--check` only looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from construct import Bytes, Construct, FormatField, IfThenElse, Renamed, Struct

from rmqctl.formats import schemas
from rmqctl.formats.layout import Layout

_HOSTS = ("born_host", "store_host")

# layouts that have the name of their schema
_WHOLE = """
    BLANK_FRAME HOST_V4 HOST_V6 PROPERTY_CRC CONSUMEQUEUE_UNIT BATCH_CONSUMEQUEUE_UNIT INDEX_HEADER INDEX_SLOT
    INDEX_ENTRY TIERED_INDEX_HEADER TIERED_INDEX_SLOT TIERED_INDEX_ITEM LOCAL_TIERED_INDEX_SLOT
    LOCAL_TIERED_INDEX_ITEM TIMER_CHECKPOINT TIMER_WHEEL_SLOT TIMER_LOG_UNIT DLEDGER_ENTRY_HEAD
    DLEDGER_INDEX_UNIT ROCKSDB_RECORD ROCKSDB_BATCH ROCKSDB_BLOCK_TRAILER ROCKSDB_FOOTER ROCKSDB_QUEUE_UNIT
    ROCKSDB_QUEUE_END ROCKSDB_TIMER ROCKSDB_TRANSACTION OFFSET_MESSAGE_ID_V4 OFFSET_MESSAGE_ID_V6 UNIQUE_ID_V4
    UNIQUE_ID_V6
""".split()

FIXED: list[tuple[str, Construct, dict[str, bool]]] = [
    *[
        (f"FRAME_HEAD_{born}{store}", schemas.message_frame, {"born_host": born == "6", "store_host": store == "6"})
        for store in "46"
        for born in "46"
    ],
    *[(name, getattr(schemas, name.lower()), {}) for name in _WHOLE],
    ("BATCH_ITEM_HEAD", schemas.batch_item, {}),
    ("CONSUMEQUEUE_EXT_UNIT_HEAD", schemas.consumequeue_ext_unit, {}),
    ("CHECKPOINT", schemas.checkpoint_values, {}),
]

# name, schema, field behind variable bytes, choices
LENGTHS: list[tuple[str, Construct, str, dict[str, bool]]] = [
    ("TOPIC_LENGTH_V1", schemas.message_frame, "topic_length", {"topic_length": False}),
    ("TOPIC_LENGTH_V2", schemas.message_frame, "topic_length", {"topic_length": True}),
    ("PROPERTIES_LENGTH", schemas.message_frame, "properties_length", {}),
    ("BATCH_ITEM_PROPERTIES_LENGTH", schemas.batch_item, "properties_length", {}),
]

DOCUMENTED: list[tuple[str, str, Construct]] = [
    ("Commitlog frame", "`commitlog/<offset>`, messages back to back", schemas.message_frame),
    ("Blank frame", "fills a commitlog file to its end", schemas.blank_frame),
    ("Batch item", "one inner message in the body of an inner batch", schemas.batch_item),
    ("Property", "one entry of the property string", schemas.property_entry),
    ("Frame checksum", "the last property of a frame written with `enabledAppendPropCRC`", schemas.property_crc),
    ("Consumequeue unit", "`consumequeue/<topic>/<queue>/<offset>`", schemas.consumequeue_unit),
    ("Consumequeue ext unit", "`consumequeue_ext/<topic>/<queue>/<offset>`", schemas.consumequeue_ext_unit),
    ("Batch consumequeue unit", "`batchconsumequeue/<topic>/<queue>/<offset>`", schemas.batch_consumequeue_unit),
    ("Index header", "first bytes of `index/<time of creation>`", schemas.index_header),
    ("Index slot", "the hash slots behind the header", schemas.index_slot),
    ("Index entry", "the entries behind the slots", schemas.index_entry),
    ("Checkpoint", "`checkpoint`", schemas.checkpoint_values),
    ("Timer checkpoint", "`config/timercheck`", schemas.timer_checkpoint),
    ("Timer wheel slot", "`timerwheel`, or a snapshot of it, `timerwheel.<position>`", schemas.timer_wheel_slot),
    ("Timer log unit", "`timerlog/<offset>`", schemas.timer_log_unit),
    ("DLedger entry head", "`dledger-<id>/data/<offset>`, before each frame", schemas.dledger_entry_head),
    ("DLedger index unit", "`dledger-<id>/index/<offset>`, unit n at byte 32 n", schemas.dledger_index_unit),
    ("RocksDB queue unit", "value in the family `default` of a database of queues", schemas.rocksdb_queue_unit),
    ("RocksDB queue end", "value in the family `offset` of a database of queues", schemas.rocksdb_queue_end),
    ("Offset message id", "32 hex digits; 56 with an IPv6 address of 16 bytes", schemas.offset_message_id_v4),
    ("Unique id", "property UNIQ_KEY, 32 hex digits; 56 with an IPv6 address", schemas.unique_id_v4),
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

ROOT = Path(__file__).resolve().parents[2]


# Layouts and descriptions of fields, derived from the construct schemas.


class SchemaField(NamedTuple):
    """One field of a schema, flattened: `code` is a struct code, or None where the size is not fixed."""

    name: str
    code: str | None
    size: int | None
    type_name: str
    doc: str


# construct's own format characters are native-size dependent (`>l` is 4 bytes for struct but 8 for numpy), so the
# code is taken from signedness and size.
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}


def _integer_code(field: FormatField) -> str:
    code = _SIGNED[field.sizeof()]
    return code if field.fmtstr[-1].islower() else code.upper()


def schema_fields(schema: Construct, choices: Mapping[str, bool] | None = None) -> Iterator[SchemaField]:
    """Fields of `schema`, all of which have names, in order; nested structures are flattened with `_`.

    `choices` answers the schema's conditions by field name (`{"born_host": True}` takes the first branch); a field
    with a condition that is not answered has neither code nor size.
    """
    for member in schema.subcons:
        yield from _flatten(member.name, member, _doc(member), choices or {})


def _doc(member: Construct) -> str:
    return str(getattr(member, "docs", "") or "")


def _flatten(name: str, member: Construct, doc: str, choices: Mapping[str, bool]) -> Iterator[SchemaField]:
    member = _bare(member)
    if isinstance(member, IfThenElse):
        if name not in choices:
            yield SchemaField(name, None, None, _variants(member), doc)
            return
        yield from _flatten(name, member.thensubcon if choices[name] else member.elsesubcon, doc, choices)
    elif isinstance(member, FormatField):
        yield SchemaField(name, _integer_code(member), member.sizeof(), f"i{member.sizeof() * 8}", doc)
    elif isinstance(member, Struct):
        for inner in member.subcons:
            yield from _flatten(f"{name}_{inner.name}", inner, f"{doc}: {_doc(inner)}", choices)
    elif isinstance(member, Bytes) and not callable(member.length):
        yield SchemaField(name, f"{member.length}s", member.length, f"{member.length} bytes", doc)
    else:
        yield SchemaField(name, None, None, "bytes", doc)


def _variants(member: IfThenElse) -> str:
    sizes = sorted({member.thensubcon.sizeof(), member.elsesubcon.sizeof()})
    return " or ".join(str(size) for size in sizes) + " bytes"


def derive_layout(name: str, schema: Construct, choices: Mapping[str, bool] | None = None) -> Layout:
    """The longest fixed prefix of `schema` as a Layout; asserts that construct agrees about its size."""
    fields: list[tuple[str, str, int, int]] = []
    offset = 0
    for field in schema_fields(schema, choices):
        if field.code is None or field.size is None:
            break
        fields.append((field.name, field.code, offset, field.size))
        offset += field.size
    layout = Layout(name, tuple(fields), _order(schema))
    assert layout.size == offset, f"layout {name}: struct says {layout.size} bytes, the schema {offset}"
    return layout


def _bare(member: Construct) -> Construct:
    """Return a member without its name and description."""
    while isinstance(member, Renamed):
        member = member.subcon
    return member


def _order(schema: Construct) -> str:
    """Return the byte order of a schema's integers, "<" or ">": all of them have the same."""
    integers = map(_bare, schema.subcons)
    orders = {one.fmtstr[0] for one in integers if isinstance(one, FormatField) and one.sizeof() > 1}
    assert len(orders) <= 1, "integers of a schema differ in their byte order"
    return orders.pop() if orders else ">"


def derive_field(name: str, schema: Construct, field: str, choices: Mapping[str, bool] | None = None) -> Layout:
    """Return the Layout of one field that follows bytes of variable length."""
    for found in schema_fields(schema, choices):
        if found.name == field and found.code is not None and found.size is not None:
            return Layout(name, ((field, found.code, 0, found.size),))
    raise KeyError(field)


def layouts_source() -> str:
    """The text of formats/layouts.py."""
    lines = [
        '"""Fixed layouts. Generated from formats/schemas.py by `python -m tests.generated.layouts`: do not edit."""',
        "",
        "from rmqctl.formats.layout import Layout",
        "",
    ]
    layouts: list[Layout] = [derive_layout(name, schema, choices) for name, schema, choices in FIXED]
    layouts += [derive_field(name, schema, field, choices) for name, schema, field, choices in LENGTHS]
    for layout in layouts:
        lines.append(f'{layout.name} = Layout("{layout.name}", (')
        lines += [f'    ("{field}", "{code}", {offset}, {size}),' for field, code, offset, size in layout.fields]
        lines.append("))" if layout.order == ">" else f'), "{layout.order}")')
    lines += [
        "# by sys_flag: bit 0x10 (born host IPv6) + bit 0x20 (store host IPv6), shifted down by four",
        "FRAME_HEADS = (FRAME_HEAD_44, FRAME_HEAD_64, FRAME_HEAD_46, FRAME_HEAD_66)",
        f"MESSAGE_MAGIC_V1 = 0x{schemas.MESSAGE_MAGIC_V1:X}",
        f"MESSAGE_MAGIC_V2 = 0x{schemas.MESSAGE_MAGIC_V2:X}",
        f"BLANK_MAGIC = 0x{schemas.BLANK_MAGIC:X}",
        f"DLEDGER_MAGIC = {schemas.DLEDGER_MAGIC}",
        f"TIERED_INDEX_MAGIC = 0x{schemas.TIERED_INDEX_MAGIC:X}",
        f"TIERED_INDEX_OPEN = 0x{schemas.TIERED_INDEX_OPEN:X}",
        f"CHECKPOINT_SIZE = {schemas.CHECKPOINT_SIZE}",
        f"TIMER_CHECKPOINT_SIZE = {schemas.TIMER_CHECKPOINT_SIZE}",
        f"TIMER_WHEEL_SLOTS = {schemas.TIMER_WHEEL_SLOTS}",
        "# MessageSysFlag",
    ]
    lines += [f"SYS_FLAG_{name.upper()} = 0x{mask:X}" for name, mask in schemas.SYS_FLAG_BITS.items()]
    lines += [
        f"TRANSACTION_MASK = 0x{schemas.TRANSACTION_MASK:X}",
        f"COMPRESSION_SHIFT = {schemas.COMPRESSION_SHIFT}",
        f"COMPRESSION_MASK = 0x{schemas.COMPRESSION_MASK:X}",
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
