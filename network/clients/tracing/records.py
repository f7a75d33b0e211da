"""Trace records: what a client did with a message, in RocketMQ's encoding (TraceDataEncoder, TraceContext)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.network.clients.consume_hooks import ConsumeReturn
from rmqctl.network.clients.producing.hooks import MessageType
from rmqctl.network.clients.producing.requests import DEFAULT_REGION

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_FIELD, _RECORD = "\x01", "\x02"
_NULL = "null"
_KEY_SEPARATOR = " "


class TraceType(enum.Enum):
    """Kind of a record, by RocketMQ's names."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class TraceBean(NamedTuple):
    """One message of a record. None is a value that the message does not have."""

    topic: str | None = None
    message_id: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int = 0
    message_type: MessageType = MessageType.NORMAL
    offset_message_id: str | None = None
    retry_times: int = 0
    transaction_id: str | None = None
    transaction_state: str = ""
    is_from_check: bool = False


class TraceRecord(NamedTuple):
    """What a client did: `timestamp` in ms since 1970, `cost` in ms; `request_id` joins the start and end of a
    consumption. A record of consumption has a bean for each message, others have one. Decoded, None is unknown."""

    type: TraceType
    beans: Sequence[TraceBean]
    timestamp: int | None
    group: str | None
    region: str | None = DEFAULT_REGION
    cost: int = 0
    is_success: bool = True
    request_id: str = ""
    code: ConsumeReturn | None = ConsumeReturn.SUCCESS


def encode(record: TraceRecord) -> str:
    """Return the text of a record (encoderFromContextBean)."""
    return "".join(_FIELD.join(map(_text, _fields(record, bean))) + _RECORD for bean in record.beans)


def keys_of(record: TraceRecord) -> list[str]:
    """Return the keys by which a record is found: ids and keys of its messages."""
    found: list[str] = []
    for bean in record.beans:
        found.append(bean.message_id)
        found += bean.keys.split(_KEY_SEPARATOR) if bean.keys else ()
    return found


def _fields(record: TraceRecord, bean: TraceBean) -> list[object]:
    head = [record.type.value, record.timestamp, record.region, record.group]
    message = [bean.topic, bean.message_id, bean.tags, bean.keys, bean.store_host]
    match record.type:
        case TraceType.PUB:
            rest = [bean.body_length, record.cost, int(bean.message_type), bean.offset_message_id, record.is_success]
            return [*head, *message, *rest]
        case TraceType.SUB_BEFORE:
            return [*head, record.request_id, bean.message_id, bean.retry_times, bean.keys]
        case TraceType.SUB_AFTER:
            code = None if record.code is None else int(record.code)
            said = [record.request_id, bean.message_id, record.cost, record.is_success, bean.keys, code]
            return [record.type.value, *said, record.timestamp, record.group]
        case TraceType.END_TRANSACTION:
            end = [bean.transaction_id, bean.transaction_state, bean.is_from_check]
            return [*head, *message, int(bean.message_type), *end]
        case TraceType.RECALL:
            return [*head, bean.topic, bean.message_id, record.is_success]


def _text(value: object) -> str:
    if value is None:
        return _NULL
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode(body: bytes) -> list[TraceRecord]:
    """Return the records in the body of a trace message, each with one bean (decoderFromTraceDataString).

    Raises: CorruptError where the body is not made of records.
    """
    try:
        texts = [one for one in body.decode("utf-8").split(_RECORD) if one]
        return [_decoded(one.split(_FIELD)) for one in texts]
    except (ValueError, IndexError) as error:
        raise CorruptError("the body of the trace message is not made of trace records") from error


def _decoded(fields: list[str]) -> TraceRecord:
    return _DECODERS[TraceType(fields[0])](fields)


def _pub(fields: list[str]) -> TraceRecord:
    # clients before 4.5.2 did not write the id of the broker
    has_id = len(fields) > 13
    bean = _message(fields)._replace(
        body_length=int(fields[9]),
        message_type=MessageType(int(fields[11])),
        offset_message_id=_known(fields[12]) if has_id else None,
    )
    is_success = fields[13 if has_id else 12] == "true" if len(fields) > 12 else True
    return _head(fields, bean)._replace(cost=int(fields[10]), is_success=is_success)


def _sub_before(fields: list[str]) -> TraceRecord:
    bean = TraceBean(message_id=fields[5], retry_times=int(fields[6]), keys=_known(fields[7]))
    return _head(fields, bean)._replace(request_id=fields[4])


def _sub_after(fields: list[str]) -> TraceRecord:
    bean = TraceBean(message_id=fields[2], keys=_known(fields[5]))
    has_time = len(fields) > 8
    return TraceRecord(
        TraceType.SUB_AFTER,
        (bean,),
        int(fields[7]) if has_time else None,
        _known(fields[8]) if has_time else None,
        None,
        int(fields[3]),
        fields[4] == "true",
        fields[1],
        ConsumeReturn(int(fields[6])) if len(fields) > 6 and fields[6] else None,
    )


def _end_transaction(fields: list[str]) -> TraceRecord:
    bean = _message(fields)._replace(
        message_type=MessageType(int(fields[9])),
        transaction_id=_known(fields[10]),
        transaction_state=fields[11],
        is_from_check=fields[12] == "true",
    )
    return _head(fields, bean)


def _recall(fields: list[str]) -> TraceRecord:
    bean = TraceBean(topic=_known(fields[4]), message_id=fields[5])
    return _head(fields, bean)._replace(is_success=fields[6] == "true")


def _head(fields: list[str], bean: TraceBean) -> TraceRecord:
    return TraceRecord(TraceType(fields[0]), (bean,), int(fields[1]), _known(fields[3]), _known(fields[2]))


def _message(fields: list[str]) -> TraceBean:
    return TraceBean(_known(fields[4]), fields[5], _known(fields[6]), _known(fields[7]), _known(fields[8]))


def _known(text: str) -> str | None:
    return None if text == _NULL else text


_DECODERS: dict[TraceType, Callable[[list[str]], TraceRecord]] = {
    TraceType.PUB: _pub,
    TraceType.SUB_BEFORE: _sub_before,
    TraceType.SUB_AFTER: _sub_after,
    TraceType.END_TRANSACTION: _end_transaction,
    TraceType.RECALL: _recall,
}
