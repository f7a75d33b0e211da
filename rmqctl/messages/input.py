"""Messages to be stored, each from a line of JSON (what `cat --json` prints), a row, or the flags of `append`."""

from __future__ import annotations

import binascii
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.compression import compress
from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import LOCAL_HOST, Host, Message, StoredMessage, parse_host
from rmqctl.formats.properties import compression_type
from rmqctl.messages.json import JSON_ORDER, message_json
from rmqctl.network.unique_ids import NextId, UniqueIds

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.log.columns import Flags
    from rmqctl.store.write.bulk.bulk import BulkRows

NAMED_BY = ("msg_id", "unique_key")
"""Fields by which a message that was stored is known."""

# what json.loads ends in, without looking for an encoding
_decode = json.JSONDecoder().raw_decode
_FIELDS = frozenset(JSON_ORDER)
_HOST_BITS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_LONG = (-(1 << 63), (1 << 63) - 1)
_INT = (-(1 << 31), (1 << 31) - 1)
_known_host = functools.lru_cache(4096)(parse_host)


def message_from_line(line: bytes, as_stored: bool) -> tuple[Message, bool]:
    """The message of one line of JSON, and whether it is a new one. UsageError that says what is wrong with it.

    Kept is what a producer sets; with `as_stored` also the store time and the store host.
    """
    record = _object(line)
    if not record.keys() <= _FIELDS:
        unknown = min(record.keys() - _FIELDS)
        raise UsageError(f"there is no field {unknown!r}", hint="the fields are those that `cat --json` prints")
    return message_from_record(record, as_stored), is_new(record)


def is_new(record: Mapping[str, Any]) -> bool:
    """Whether it describes a message that was never stored: one that was names its id, and is copied with what it
    has."""
    return not any(record.get(name) for name in NAMED_BY)


def _object(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
        record, end = _decode(text)
        if type(record) is dict and not text[end:].strip(" \t\r\n"):
            return record
    except (ValueError, RecursionError):
        pass
    # the slow way knows byte order marks, and what is wrong
    try:
        record = json.loads(line)
    except RecursionError as error:
        # what Python says of it is another figure each time
        raise UsageError("it is not JSON: it is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"it is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise UsageError("it is JSON, but no object")
    return record


def message_from_record(record: Mapping[str, Any], as_stored: bool) -> Message:
    """See message_from_line."""
    sys_flag = _integer(record, "sys_flag", 0, _INT) & ~_HOST_BITS
    if as_stored and (record.get("store_timestamp") is None or record.get("store_host") is None):
        raise UsageError("--as-stored needs store_timestamp and store_host")
    return Message(
        topic=_text(record, "topic"),
        body=_stored_body(record, sys_flag),
        queue_id=_integer(record, "queue_id", 0, (0, _INT[1])),
        flag=_integer(record, "flag", 0, _INT),
        properties=_properties(record),
        property_bytes=_base64(record, "properties_base64"),
        sys_flag=sys_flag,
        born_timestamp=_integer(record, "born_timestamp", 0, _LONG) if _has(record, "born_timestamp") else None,
        born_host=_host(record, "born_host") if _has(record, "born_host") else LOCAL_HOST,
        store_timestamp=_integer(record, "store_timestamp", 0, _LONG) if as_stored else None,
        store_host=_host(record, "store_host") if as_stored else None,
        reconsume_times=_integer(record, "reconsume_times", 0, _INT),
        prepared_transaction_offset=_integer(record, "prepared_transaction_offset", 0, _LONG),
    )


def _has(record: Mapping[str, Any], name: str) -> bool:
    return record.get(name) is not None


def _stored_body(record: Mapping[str, Any], sys_flag: int) -> bytes:
    """The body in stored form: exact if it was given so, else compressed as the sys_flag says."""
    stored = _base64(record, "stored_body_base64")
    if stored is not None:
        return stored
    if record.get("body") is not None:
        if record.get("body_base64") is not None:
            raise UsageError("it has both body and body_base64")
        body = _text(record, "body", may_be_empty=True).encode("utf-8")
    else:
        found = _base64(record, "body_base64")
        if found is None:
            raise UsageError("it has neither body nor body_base64")
        body = found
    kind = compression_type(sys_flag)
    # what could not be unpacked was printed as it is stored
    return body if kind is None or record.get("body_error") is not None else compress(body, kind)


def _text(record: Mapping[str, Any], name: str, may_be_empty: bool = False) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise UsageError(f"{name} must be a text, not {json.dumps(value)[:40]}")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} holds half a surrogate pair") from error
    return value


def _integer(record: Mapping[str, Any], name: str, default: int, bounds: tuple[int, int]) -> int:
    value = record.get(name, default)
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        least, most = bounds
        raise UsageError(f"{name} must be a whole number of {least} to {most}, not {json.dumps(value)[:40]}")
    return value


def _host(record: Mapping[str, Any], name: str) -> Host:
    return _known_host(_text(record, name))


def _base64(record: Mapping[str, Any], name: str) -> bytes | None:
    value = record.get(name)
    if value is None or isinstance(value, bytes):  # bytes: from where they need no base64
        return value
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise UsageError(f"{name} is not base64") from error


def _properties(record: Mapping[str, Any]) -> dict[str, str]:
    """The `properties`; without them what `tags` and `keys` say."""
    found = record.get("properties")
    if found is None:
        return properties_of(record.get("tags"), record.get("keys") or [], {})
    if not isinstance(found, dict):
        raise UsageError("properties must be an object of texts")
    try:
        texts = "".join(found), "".join(found.values())
        if "" not in found and texts[0].isprintable() and texts[1].isascii() and "\x02" not in texts[1]:
            return found
    except TypeError:
        pass  # what is no text is named below
    return {check_property(name, value): value for name, value in found.items()}


def check_property(name: object, value: object) -> str:
    """`name`, if both are texts that a property can hold."""
    for part in (name, value):
        if not isinstance(part, str):
            raise UsageError(f"property {name!r} must be a text, not {json.dumps(part)[:40]}")
        if "\x02" in part or (part is name and "\x01" in part):
            raise UsageError(f"property {name!r} holds a separator of the property string (0x01, 0x02)")
    _text({"property": f"{name}{value}"}, "property")
    return str(name)


def properties_of(tags: Any, keys: Any, others: Mapping[str, str]) -> dict[str, str]:
    """Properties of a new message, in the order a producer sets them."""
    found: dict[str, str] = {}
    if keys:
        if not isinstance(keys, list):
            raise UsageError(f'keys must be a list of texts, such as ["order-7"], not {json.dumps(keys)[:40]}')
        if not all(isinstance(key, str) and key and " " not in key for key in keys):
            raise UsageError("keys must be texts without spaces", hint="RocketMQ separates keys by spaces")
        found[names.KEYS] = " ".join(keys)
    if tags is not None:
        found[names.TAGS] = tags
    found.update(others)
    return {check_property(name, value): value for name, value in found.items()}


# Some messages of what `append --from` reads, on their way into the store.

PARQUET_MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
"""What tables begin with."""


class MessagePiece(NamedTuple):
    """Some items of a source that follow one another: as messages, or still as the columns of a table.

    `content`: messages, the columns of a table, or rows that were made of lines.
    `numbers`: from 1, one for each item that is in here; `bytes`: what was read for them. `errors`: what is wrong with
    items that could not be read, by their numbers. `plain`: of columns, all the piece was made of once more, as
    messages, which takes longer and can say what is wrong with which of them. `new`: by item whether it describes a
    message that was never stored, which gets a unique id; empty once that is done. `identify`: gives rows their ids.
    """

    numbers: Sequence[int]
    bytes: int
    content: list[Message] | pa.RecordBatch | BulkRows
    errors: dict[int, str]
    plain: Callable[[], MessagePiece] | None = None
    new: Sequence[bool] | Flags = ()
    identify: Callable[[UniqueIds], None] | None = None

    def without(self, places: dict[int, str]) -> MessagePiece:
        """Return the piece without the lines at these places, which become errors."""
        if not places:
            return self
        left = [place for place in range(len(self.numbers)) if place not in places]
        errors = self.errors | {self.numbers[place]: why for place, why in places.items()}
        content: list[Message] | pa.RecordBatch | BulkRows
        if isinstance(self.content, list):
            content = [self.content[place] for place in left]
        else:
            import numpy as np

            content = self.content.take(np.array(left, np.int64))  # of an empty list Arrow knows no type
        return MessagePiece([self.numbers[place] for place in left], self.bytes, content, errors)


# Gives unique ids to the new messages among pieces, whether these are messages or columns.


def identified(pieces: Iterable[MessagePiece], ids: UniqueIds) -> Iterator[MessagePiece]:
    """The pieces one after the other. New messages have ids as `UniqueIds.given_to` gives them, in their order."""
    return (_identified(piece, ids) for piece in pieces)


def _identified(piece: MessagePiece, ids: UniqueIds) -> MessagePiece:
    if piece.identify is not None:
        piece.identify(ids)
        return piece._replace(identify=None, plain=None)
    if not any(piece.new):
        return piece
    if isinstance(piece.content, list):
        new = set(itertools.compress(range(len(piece.content)), piece.new))
        messages = [ids.given_to(one) if place in new else one for place, one in enumerate(piece.content)]
        return piece._replace(content=messages, new=())
    before = ids.place
    try:
        content = _with_ids(piece.content, piece.new, ids)
    except UsageError:
        if piece.plain is None:
            raise
        return _identified(piece.plain(), ids)
    return piece._replace(content=content, plain=functools.partial(_once_more, piece, ids, before, ids.place), new=())


def _once_more(piece: MessagePiece, ids: UniqueIds, before: NextId, behind: NextId) -> MessagePiece:
    """The messages of columns with the ids that the columns have, unless others got ids since."""
    if ids.place == behind:
        ids.place = before
    return _identified(piece.plain(), ids) if piece.plain is not None else piece


def _with_ids(batch: pa.RecordBatch, new: Sequence[bool] | Flags, ids: UniqueIds) -> pa.RecordBatch:
    """UsageError for columns of properties that are not as they must be."""
    from rmqctl.store.scan.batches import fixed_texts
    from rmqctl.store.write.bulk.arrow import lacking, with_property

    needing = new & lacking(batch, names.UNIQUE_KEY)
    return with_property(batch, needing, names.UNIQUE_KEY, lambda count: fixed_texts(ids.take(count)))


# Dead letters as lines of JSON for a producer: what `append --from` and `produce --from` read.

# what the dead letter was where it lies, and is not where it goes
_KEPT = (
    "unique_key",
    "born_timestamp",
    "born_host",
    "flag",
    "tags",
    "keys",
    "body_size",
    "body",
    "body_base64",
    "body_error",
    "stored_body_base64",
)


def redriven_line(dead: StoredMessage, message: Message) -> bytes:
    """`message`, made of the dead letter `dead`, as one line with its end."""
    before = message_json(dead, stored_body=True)
    record = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "sys_flag": message.sys_flag,
        "reconsume_times": 0,
        "properties": dict(message.properties),
        **{name: before[name] for name in _KEPT if name in before},
    }
    return json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n"
