"""What record batches must hold, made from messages by the plain code that prints them as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from rmqctl.formats.message import StoredMessage
from rmqctl.messages.json import message_json
from rmqctl.store.scan.schema import COLUMNS

_BYTES = {"stored_properties": "properties_base64", "stored_body": "stored_body_base64"}


def plain_row(message: StoredMessage) -> dict[str, Any]:
    """The row of a message: its JSON, with times in ms and what is base64 there as bytes."""
    record = message_json(message, stored_body=True)
    row = {name: record.get(name) for name in COLUMNS}
    body = record.get("body")
    row["body"] = body.encode("utf-8") if body is not None else base64.b64decode(record["body_base64"])
    for name, field in _BYTES.items():
        row[name] = base64.b64decode(record[field]) if field in record else None
    row["properties"] = list(record["properties"].items())
    return row


def arrow_rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows of valid batches, times in ms."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows > 0
        arrays = [array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array for array in batch.columns]
        rows += pa.RecordBatch.from_arrays(arrays, names=batch.schema.names).to_pylist()
    return rows
