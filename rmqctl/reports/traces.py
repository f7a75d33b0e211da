"""Message traces as rows: what clients did with a message, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import CorruptError
from rmqctl.messages.traces import EVENTS, record_fields

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.network.clients.tracing.records import TraceBean, TraceRecord

TRACE_COLUMNS = (
    "trace_timestamp", "event", "group", "client", "result", "cost_ms", "retry_times", "message_id", "keys", "topic",
)  # fmt: skip
DROPPABLE_TRACE_COLUMNS = ("keys", "topic", "retry_times", "message_id", "cost_ms")


def trace_rows(messages: Sequence[StoredMessage], key: str) -> tuple[list[dict[str, Any]], list[CorruptError]]:
    """Return a row for each record of a message with the id or key, the earliest first, and the trace messages that
    cannot be decoded."""
    from rmqctl.network.clients.tracing.records import decode

    rows: list[dict[str, Any]] = []
    damaged: list[CorruptError] = []
    groups: dict[str, str] = {}
    for message in messages:
        try:
            records = decode(message.plain_body())
        except CorruptError as error:
            damaged.append(CorruptError(f"message at offset {message.physical_offset}: {error.message}"))
            continue
        groups |= {one.request_id: one.group for one in records if one.request_id and one.group is not None}
        rows += [_row(one, message) for one in records if _is_about(one.beans[0], key)]
    for row in rows:
        # clients before 4.9 do not name the group at the end of a consumption
        row["group"] = row["group"] or groups.get(row["request_id"] or "")
    order = list(EVENTS.values())
    rows.sort(key=lambda row: (row["trace_timestamp"] or 0, order.index(row["event"])))
    return rows, damaged


def _is_about(bean: TraceBean, key: str) -> bool:
    return key == bean.message_id or key in bean.message_id.split(",") or key in (bean.keys or "").split(" ")


def _row(record: TraceRecord, message: StoredMessage) -> dict[str, Any]:
    fields = record_fields(record)
    first = {name: fields.pop(name) for name in ("trace_timestamp", "event", "group")}
    client = str(message.born_host).rpartition(":")[0]
    return {**first, "client": client, **fields, "physical_offset": message.physical_offset}
