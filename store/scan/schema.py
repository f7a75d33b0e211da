"""The Arrow columns of a message: their names (those of its JSON), their types and what of the log they are made from.

Three things differ from the JSON because Arrow has types: timestamps are timestamps, `body` holds the bytes of the
plain body whatever they are, and what JSON gives as base64 are bytes: `stored_body` and `stored_properties`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.formats import properties as names
from rmqctl.formats.errors import ExhaustedError, UnsupportedError, UsageError, refuse_exhausted
from rmqctl.formats.properties import encode_properties, parse_properties, split_keys
from rmqctl.store.log.columns import Bytes, Int32s
from rmqctl.store.native.tables import Columns
from rmqctl.store.status import FAST

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.scan.arrays import Texts

_HEAD, _TOPIC, _BYTES = Columns.HEAD, Columns.TOPIC, Columns.BYTES
_PROPERTIES = Columns.BYTES
_BODY = Columns.HEAD | Columns.BYTES


class SchemaColumn(NamedTuple):
    """`kind` names the Arrow type, see `_type_of`; `needs` are the groups of columns of the walk it is made from."""

    kind: str
    needs: Columns


COLUMNS: dict[str, SchemaColumn] = {
    "msg_id": SchemaColumn("string", _HEAD | _BYTES),
    "unique_key": SchemaColumn("string", _PROPERTIES),
    "topic": SchemaColumn("topic", _TOPIC),
    "queue_id": SchemaColumn("int32", _HEAD),
    "queue_offset": SchemaColumn("int64", _HEAD),
    "physical_offset": SchemaColumn("int64", Columns.NONE),
    "size": SchemaColumn("int32", Columns.NONE),
    "store_timestamp": SchemaColumn("time", _HEAD),
    "born_timestamp": SchemaColumn("time", _HEAD),
    "store_host": SchemaColumn("string", _HEAD | _BYTES),
    "born_host": SchemaColumn("string", _HEAD | _BYTES),
    "sys_flag": SchemaColumn("int32", _HEAD),
    "flag": SchemaColumn("int32", _HEAD),
    "transaction": SchemaColumn("name", _HEAD),
    "compression": SchemaColumn("name", _HEAD),
    "body_crc": SchemaColumn("int32", _HEAD),
    "crc_ok": SchemaColumn("bool", Columns.NONE),
    "reconsume_times": SchemaColumn("int32", _HEAD),
    "prepared_transaction_offset": SchemaColumn("int64", _HEAD),
    "tags": SchemaColumn("string", _PROPERTIES),
    "keys": SchemaColumn("strings", _PROPERTIES),
    "properties": SchemaColumn("map", _PROPERTIES),
    "stored_properties": SchemaColumn("bytes", _PROPERTIES),
    "body_size": SchemaColumn("int32", _BODY),
    "body": SchemaColumn("body", _BODY),
    "body_error": SchemaColumn("string", _BODY),
    "stored_body": SchemaColumn("bytes", _BODY),
}
"""All columns in their order.

`stored_properties` holds the stored bytes where writing `properties` again would not give them, and is null elsewhere;
`stored_body` the stored body of a compressed message, null elsewhere; `body_error` why such a body cannot be unpacked:
then `body` is as stored.
"""


def require_pyarrow() -> None:
    """UnsupportedError unless pyarrow can be imported."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        refuse_exhausted(error)
        raise UnsupportedError(f"Arrow and Parquet need pyarrow, which is not installed here: {FAST}") from error


def has_arrow() -> bool:
    """Whether there is pyarrow."""
    try:
        require_pyarrow()
    except (UnsupportedError, ExhaustedError):
        return False
    return True


def column_names(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns asked for, None meaning all; UsageError for a name that is none, or that comes twice."""
    if columns is None:
        return tuple(COLUMNS)
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(COLUMNS)}")
        if list(columns).count(name) > 1:
            raise UsageError(f"column {name!r} is asked for twice")
    if not columns:
        raise UsageError("no column is asked for")
    return tuple(columns)


def needed(names: Sequence[str]) -> Columns:
    """What the walk has to give for these columns."""
    groups = Columns.NONE
    for name in names:
        groups |= COLUMNS[name].needs
    return groups


def arrow_schema(names: Sequence[str], views: bool) -> pa.Schema:
    """The schema of the columns; with `views` the bodies are `binary_view`, which need no copy."""
    import pyarrow as pa

    return pa.schema([pa.field(name, _type_of(COLUMNS[name].kind, views)) for name in names])


def _type_of(kind: str, views: bool) -> pa.DataType:
    import pyarrow as pa

    if kind == "body":
        return pa.binary_view() if views else pa.binary()
    types = {
        "string": pa.string(),
        "strings": pa.list_(pa.string()),
        "map": pa.map_(pa.string(), pa.string()),
        "bytes": pa.binary(),
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "time": pa.timestamp("ms", "UTC"),
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "name": pa.dictionary(pa.int8(), pa.string()),
    }
    return types[kind]


# Columns that stand in the property strings, plainly: the twin of `kernel_properties`.


class PropertyParts(enum.IntFlag):
    """What is asked of the properties; what is not costs nothing and comes out empty."""

    UNIQUE_KEY = 1
    TAGS = 2
    KEYS = 4
    MAP = 8
    STORED = 16


class PropertyColumns(NamedTuple):
    """Lists are given as Arrow has them: the items of row n are [offsets[n], offsets[n + 1]).

    `stored` holds the property string where `properties` does not give it back.
    """

    unique_key: Texts
    tags: Texts
    key_offsets: Int32s
    keys: Texts
    map_offsets: Int32s
    map_names: Texts
    map_values: Texts
    stored: Texts


class _Writer:
    """Collects texts."""

    def __init__(self) -> None:
        self._ends = [0]
        self._parts: list[bytes] = []
        self._present: list[bool] = []

    def add(self, text: bytes | None) -> None:
        self._parts.append(text or b"")
        self._ends.append(self._ends[-1] + len(text or b""))
        self._present.append(text is not None)

    def count(self) -> int:
        return len(self._parts)

    def made(self, nullable: bool) -> Texts:
        from rmqctl.store.scan.arrays import Texts

        data = np.frombuffer(b"".join(self._parts), np.uint8)
        present = np.array(self._present, np.bool_) if nullable else None
        return Texts(np.array(self._ends, np.int32), data, present)


def plain_columns(strings: Iterable[bytes], wanted: PropertyParts) -> PropertyColumns:
    """The columns of property strings, which must be UTF-8."""
    unique_key, tags, keys, map_names, map_values, stored = (_Writer() for _ in range(6))
    key_offsets, map_offsets = [0], [0]
    for string in strings:
        found = parse_properties(string)
        if wanted & PropertyParts.UNIQUE_KEY:
            unique_key.add(_encoded(found.get(names.UNIQUE_KEY)))
        if wanted & PropertyParts.TAGS:
            tags.add(_encoded(found.get(names.TAGS)))
        if wanted & PropertyParts.KEYS:
            for key in split_keys(found.get(names.KEYS)):
                keys.add(key.encode("utf-8"))
            key_offsets.append(keys.count())
        if wanted & PropertyParts.MAP:
            for name, value in found.items():
                map_names.add(name.encode("utf-8"))
                map_values.add(value.encode("utf-8"))
            map_offsets.append(map_names.count())
        if wanted & PropertyParts.STORED:
            stored.add(string if encode_properties(found) != string else None)
    return PropertyColumns(
        unique_key.made(True),
        tags.made(True),
        np.array(key_offsets, np.int32),
        keys.made(False),
        np.array(map_offsets, np.int32),
        map_names.made(False),
        map_values.made(False),
        stored.made(True),
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8")


def strings_at(window: Bytes, positions: Int32s, lengths: Int32s) -> list[bytes]:
    """The bytes at each position."""
    held = np.ascontiguousarray(window).data
    ends = (positions + lengths).tolist()
    return [bytes(held[begin:end]) for begin, end in zip(positions.tolist(), ends, strict=True)]
