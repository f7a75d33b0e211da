"""Trace messages in plain words: what clients did with a message, from the body of a message of a trace topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import CorruptError

if TYPE_CHECKING:
    from rmqctl.network.clients.tracing import TraceRecord

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
