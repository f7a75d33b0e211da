"""The Arrow columns of a message: their names (those of its JSON), their types and what of the log they are made from.

Three things differ from the JSON because Arrow has types: timestamps are timestamps, `body` holds any bytes of the
plain body, and base64 of JSON are bytes: `stored_body` and `stored_properties`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import ExhaustedError, UnsupportedError, UsageError, refuse_exhausted
from rmqctl.store.native.tables import Columns
from rmqctl.store.status import FAST

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Return the requested columns, None meaning all; UsageError for an unknown or repeated name."""
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
