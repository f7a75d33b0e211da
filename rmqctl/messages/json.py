"""A message as JSON (names as in docs/commands.md) and as a row of a table; and trace messages in plain words."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.formats import properties as names
from rmqctl.formats.compression import is_plain
from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError, format_time
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import (
    TRANSACTION_NAMES,
    compression_name,
    encode_properties,
    split_keys,
    transaction_type,
)

if TYPE_CHECKING:
    from rmqctl.network.clients.tracing import TraceRecord


# Trace messages in plain words: what clients did with a message, from the body of a message of a trace topic.

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
EVENTS = {
    "Pub": "sent",
    "SubBefore": "consumption began",
    "SubAfter": "consumption ended",
    "EndTransaction": "transaction ended",
    "Recall": "recalled",
}
"""Kinds of records by RocketMQ's names, in the order in which they happen."""
_ENDS = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolled back", "UNKNOW": "unknown"}
_RETURNED = {"TIME_OUT": "time-out", "EXCEPTION": "exception", "RETURNNULL": "no verdict", "FAILED": "failed"}
_WITH_COST = ("Pub", "SubAfter")
_SHOWN = 3


def record_fields(record: TraceRecord) -> dict[str, Any]:
    """Return what a record says, as fields of JSON."""
    kind, bean = record.type.value, record.beans[0]
    result: str | None = "success" if record.is_success else "failed"
    if kind == "SubBefore":
        result = None
    elif kind == "EndTransaction":
        result = _ENDS.get(bean.transaction_state, bean.transaction_state)
    elif kind == "SubAfter" and record.code is not None:
        result = _RETURNED.get(record.code.name, result)
    return {
        "trace_timestamp": record.timestamp,
        "event": EVENTS[kind],
        "group": record.group,
        "result": result,
        "cost_ms": record.cost if kind in _WITH_COST else None,
        "retry_times": bean.retry_times if kind == "SubBefore" else None,
        "message_id": bean.message_id,
        "keys": bean.keys,
        "topic": bean.topic,
        "request_id": record.request_id or None,
        "store_host": bean.store_host,
        "region": record.region,
        "tags": bean.tags,
        "offset_message_id": bean.offset_message_id,
        "body_size": bean.body_length if kind == "Pub" else None,
    }


def traces_of(body: bytes) -> dict[str, Any]:
    """Return the fields that `cat --json --traces` adds: `traces`, or `traces_error` for a body without records."""
    from rmqctl.network.clients.tracing import decode

    try:
        return {"traces": [record_fields(one) for one in decode(body)]}
    except CorruptError as error:
        return {"traces_error": error.message}


def trace_text(body: bytes, *, is_whole: bool = False) -> str | None:
    """Return the records of a body as text, the first ones unless `is_whole`; None where there are none."""
    parts = [one for one in body.split(b"\x02") if one]
    # a body may have thousands: only those that are shown are decoded
    records = traces_of(b"\x02".join(parts if is_whole else parts[:_SHOWN])).get("traces")
    if not records:
        return None
    text = "; ".join(_sentence(one) for one in records)
    left = len(parts) - len(records)
    return f"{text}; and {left} more" if left else text


def _sentence(row: dict[str, Any]) -> str:
    parts = [row["event"], row["message_id"]]
    parts += ["of", row["topic"]] if row["topic"] is not None else []
    parts += ["by", row["group"]] if row["group"] is not None else []
    cost = None if row["cost_ms"] is None else f"{row['cost_ms']} ms"
    ends = ", ".join(one for one in (row["result"], cost) if one is not None)
    return " ".join(parts) + (f": {ends}" if ends else "")


# what a table shows; JSON and CSV have more
TABLE_COLUMNS = (
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "tags",
    "keys",
    "body_size",
    "body",
)
# what a narrow terminal goes without, first first
DROPPABLE_COLUMNS = ("keys", "body_size")
ALL_COLUMNS = (
    "msg_id",
    "unique_key",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "size",
    "store_timestamp",
    "store_time",
    "born_timestamp",
    "born_time",
    "store_host",
    "born_host",
    "sys_flag",
    "flag",
    "transaction",
    "compression",
    "body_crc",
    "crc_ok",
    "reconsume_times",
    "prepared_transaction_offset",
    "tags",
    "keys",
    "properties",
    "body_size",
    "body",
    "body_base64",
)
EXACT_COLUMNS = ("properties_base64", "stored_body_base64", "body_error")
"""Fields that only some messages have: what an exact copy needs, and why a body could not be unpacked."""
STORED_BODY = "stored_body_base64"
JSON_ORDER = (
    *ALL_COLUMNS[: ALL_COLUMNS.index("properties") + 1],
    "properties_base64",
    "body_size",
    "body",
    "body_base64",
    "body_error",
    STORED_BODY,
)
"""All fields in the order in which `message_json` adds them."""
_PREVIEW_BYTES = 120
_NO_TRACES = "(not trace records)"


def message_json(message: StoredMessage, *, stored_body: bool = False) -> dict[str, Any]:
    """All of a message, ready for json.dumps. Times in ms and as ISO 8601 in UTC.

    `body` is the plain body where that is UTF-8, else there is `body_base64`; `body_size` its bytes. A compressed body
    that cannot be unpacked is given as stored, with `body_error`. With `stored_body` a compressed body is also given
    as stored, in `stored_body_base64`, so that a copy can be exact. `properties_base64` holds the stored bytes where
    writing `properties` again would not give them (order and doubles are kept, a final separator is not).
    """
    properties = message.properties()
    record: dict[str, Any] = {
        "msg_id": message.message_id or None,
        "unique_key": properties.get(names.UNIQUE_KEY),
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": message.total_size,
        "store_timestamp": message.store_timestamp,
        "store_time": format_time(message.store_timestamp),
        "born_timestamp": message.born_timestamp,
        "born_time": format_time(message.born_timestamp),
        "store_host": str(message.store_host),
        "born_host": str(message.born_host),
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "transaction": TRANSACTION_NAMES[transaction_type(message.sys_flag)],
        "compression": compression_name(message.sys_flag),
        "body_crc": message.body_crc,
        "crc_ok": message.has_good_crc() or not message.body,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "tags": properties.get(names.TAGS),
        "keys": split_keys(properties.get(names.KEYS)),
        "properties": properties,
    }
    if encode_properties(properties) != message.property_bytes:
        record["properties_base64"] = _base64(message.property_bytes)
    _add_body(record, message)
    if stored_body and compression_name(message.sys_flag) is not None:
        record[STORED_BODY] = _base64(message.body)
    return record


def _add_body(record: dict[str, Any], message: StoredMessage) -> None:
    try:
        body = message.plain_body()
    except (CorruptError, UnsupportedError) as error:
        record["body_size"] = len(message.body)
        record["body_base64"] = _base64(message.body)
        record["body_error"] = error.message
        return
    record["body_size"] = len(body)
    try:
        record["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        record["body_base64"] = _base64(body)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _preview(body: bytes) -> str:
    """The start of a body; a character that the cut went through is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(body[:_PREVIEW_BYTES], final=len(body) <= _PREVIEW_BYTES)


def _trace_preview(body: bytes) -> str:
    return trace_text(body) or f"{_NO_TRACES} {_preview(body)}"


def message_listing(message: StoredMessage) -> dict[str, Any]:
    """One message as a listing for people: as in JSON, with the properties on a line and under their own names."""
    record = message_json(message)
    record["properties"] = "  ".join(f"{name}={value}" for name, value in record["properties"].items())
    if message.topic == TRACE_TOPIC and "body_error" not in record:
        record["traces"] = trace_text(message.plain_body(), is_whole=True) or _NO_TRACES
    return record


def message_row(message: StoredMessage, *, is_trace: bool = False) -> dict[str, Any]:
    """What a table shows of a message: the body only as a preview, in words for a trace message, which those of
    RocketMQ's own trace topic are. Not sanitised: Output does that."""
    properties = message.properties()
    try:
        body = message.plain_body()
        preview = _trace_preview(body) if is_trace or message.topic == TRACE_TOPIC else _preview(body)
        size = len(body)
    except (CorruptError, UnsupportedError) as error:
        preview, size = f"({error.message})", len(message.body)
        if is_plain(message.body):
            preview += f" {_preview(message.body)}"
    return {
        "physical_offset": message.physical_offset,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp": message.store_timestamp,
        "tags": properties.get(names.TAGS),
        "keys": split_keys(properties.get(names.KEYS)),
        "body_size": size,
        "body": preview,
    }


# The columns of messages that a command line names.


def column_list(text: str | None) -> list[str] | None:
    """The names of a list with commas, None for None; UsageError for a list of nothing."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--columns names no column")
    return names


def known_columns(names: Sequence[str] | None) -> list[str] | None:
    """Return the requested fields; UsageError for an unknown or repeated one."""
    known = (*ALL_COLUMNS, *EXACT_COLUMNS)
    if names is None:
        return None
    for name in names:
        if name not in known:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(known)}")
        if list(names).count(name) > 1:
            raise UsageError(f"column {name!r} is asked for twice")
    return list(names)
