"""Messages of an Arrow record batch as rows for a bulk append. Importing this module imports pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rmqctl.formats import properties as names
from rmqctl.formats.compression import compress
from rmqctl.formats.errors import UsageError
from rmqctl.formats.hosts import LOCAL_HOST, Host, parse_host
from rmqctl.formats.layouts import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_COMPRESSED, SYS_FLAG_STORE_HOST_V6
from rmqctl.formats.message import Message
from rmqctl.formats.sys_flag import compression_type
from rmqctl.store.columns.batch import Int64s
from rmqctl.store.columns.frame_columns import HOST_TABLE, Frame, FrameSpan
from rmqctl.store.scan.schema import COLUMNS
from rmqctl.store.write.bulk.arrow_properties import checked, properties_of_batch, value_spans, with_stored
from rmqctl.store.write.bulk.bulk_rows import NO_TIME, BulkRows
from rmqctl.store.write.fast.known import packed_host

_NUMBERS = {
    Frame.QUEUE_ID: "queue_id",
    Frame.FLAG: "flag",
    Frame.SYS_FLAG: "sys_flag",
    Frame.RECONSUME_TIMES: "reconsume_times",
    Frame.PREPARED: "prepared_transaction_offset",
}
_HOST_BITS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
# a host of IPv6, which sends a row to the slow path
_NO_HOST = -1


def rows_of_batch(batch: pa.RecordBatch, is_copy: bool = False) -> BulkRows:
    """Rows of a batch with the columns of `rmqctl.store.scan.schema`, of which `topic` and `body` must be there.

    Kept is what a producer sets: topic, queue, flags, born time and host, properties, body; of copies also store time
    and store host. The rest is made anew.
    Properties are those of `properties`, where that is null or missing those that `tags` and `keys` make;
    `stored_properties` and `stored_body` replace both and `body` where they are not null. UsageError for other
    columns, types and missing values.
    """
    try:
        batch.validate()
        return _rows(batch, is_copy)
    except (pa.ArrowException, UnicodeError) as error:
        raise UsageError(f"the columns cannot be stored: {error}") from error


def _rows(batch: pa.RecordBatch, is_copy: bool) -> BulkRows:
    for name in batch.schema.names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(COLUMNS)}")
    for name in ("topic", "body"):
        if name not in batch.schema.names or _has_missing(batch.column(name)):
            raise UsageError(f"every message needs a {name}")
    count = batch.num_rows
    columns = np.zeros((len(Frame), count), np.int64)
    for place, name in _NUMBERS.items():
        if name in batch.schema.names:
            columns[place] = _integers(checked(batch.column(name)), 0)
    columns[Frame.SYS_FLAG] &= ~_HOST_BITS
    columns[Frame.BORN_TIMESTAMP] = _times(batch, "born_timestamp")
    columns[Frame.STORE_TIMESTAMP] = _times(batch, "store_timestamp") if is_copy else NO_TIME
    topics, columns[Frame.TOPIC] = _told_apart(_texts(batch.column("topic")))
    born_hosts, columns[Frame.BORN_HOST] = _hosts(batch, "born_host", LOCAL_HOST)
    store_hosts, columns[Frame.STORE_HOST] = _hosts(batch, "store_host", None) if is_copy else ([], HOST_TABLE)
    columns[Frame.STORE_HOST, columns[Frame.STORE_HOST] > HOST_TABLE] += len(born_hosts)
    body, has_stored_body = with_stored(batch, "stored_body", value_spans(checked(batch.column("body"))))
    properties = properties_of_batch(batch)
    usual = properties.usual & (columns[Frame.BORN_HOST] != _NO_HOST) & (columns[Frame.STORE_HOST] != _NO_HOST)
    usual &= (columns[Frame.SYS_FLAG] & SYS_FLAG_COMPRESSED == 0) | has_stored_body
    spans = np.zeros((2, len(FrameSpan), count), np.int64)
    spans[:, FrameSpan.BODY] = body.starts, body.ends
    spans[:, FrameSpan.PROPERTIES] = properties.data.starts, properties.data.ends
    return BulkRows(
        columns, spans[0], spans[1], body.held, properties.data.held, topics, [bytes(8), *born_hosts, *store_hosts],
        usual, _Messages(batch, columns, topics, is_copy).message, is_copy,
    )  # fmt: skip


def _has_missing(array: Any) -> bool:
    """Whether there is a null among the values, or, which Arrow does not count, one in the dictionary of them."""
    if array.null_count or not pa.types.is_dictionary(array.type):
        return bool(array.null_count)
    return bool(array.dictionary.null_count and checked(array).cast(array.type.value_type).null_count)


def _times(batch: pa.RecordBatch, name: str) -> Int64s | int:
    if name not in batch.schema.names:
        return NO_TIME
    return _integers(_milliseconds(checked(batch.column(name))), NO_TIME)


def _integers(array: Any, missing: int) -> Int64s:
    return np.asarray(array.cast(pa.int64()).fill_null(missing).to_numpy(zero_copy_only=False), np.int64)


def _milliseconds(array: Any) -> Any:
    return array.cast(pa.timestamp("ms", array.type.tz)) if pa.types.is_timestamp(array.type) else array


def _texts(array: Any) -> Any:
    """An array of texts, as they are where each has one number already. A dictionary may hold the same one twice."""
    kind = checked(array).type
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        texts = array.dictionary
        if not texts.null_count and len(texts.unique()) == len(texts):
            return array
    return array.cast(pa.string())


def _told_apart(array: Any) -> tuple[list[Any], Int64s]:
    """The different values and the number of each one; -1 for null."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return encoded.dictionary.to_pylist(), _integers(encoded.indices, -1)


def _hosts(batch: pa.RecordBatch, name: str, missing: Host | None) -> tuple[list[bytes], Int64s | int]:
    """Packed hosts, and the number of each message's from 1: _NO_HOST for one that has no packed form, HOST_TABLE for
    a null where there is no `missing` to stand for it."""
    texts, numbers = _told_apart(_texts(batch.column(name))) if name in batch.schema.names else ([], -1)
    hosts = [*map(parse_host, texts), *([] if missing is None else [missing])]
    packed = [packed_host(host) for host in hosts]
    places = [_NO_HOST if one is None else number for number, one in enumerate(packed, start=1)]
    # a null is number -1: the last place
    by_number = np.array(places if missing is not None else [*places, HOST_TABLE], np.int64)
    return [one or bytes(8) for one in packed], by_number[numbers]


class _Messages:
    """Single rows as messages, for those that take the slow path."""

    def __init__(self, batch: pa.RecordBatch, columns: Int64s, topics: list[str], is_copy: bool) -> None:
        self._batch = batch
        self._columns = columns
        self._topics = topics
        self._is_copy = is_copy

    def message(self, row: int) -> Message:
        """The row as a message; UsageError for a property that is no text."""
        columns = self._columns
        sys_flag = int(columns[Frame.SYS_FLAG, row])
        born, stored = int(columns[Frame.BORN_TIMESTAMP, row]), int(columns[Frame.STORE_TIMESTAMP, row])
        body = self._value("stored_body", row)
        if body is None:
            body = self._value("body", row)
            body = body.encode("utf-8") if isinstance(body, str) else body
            kind = compression_type(sys_flag)
            if kind is not None and self._value("body_error", row) is None:
                body = compress(body, kind)
        host = _text(self._value("born_host", row))
        store_host = _text(self._value("store_host", row)) if self._is_copy else None
        return Message(
            topic=self._topics[int(columns[Frame.TOPIC, row])],
            body=body,
            queue_id=int(columns[Frame.QUEUE_ID, row]),
            flag=int(columns[Frame.FLAG, row]),
            properties=self._properties_of(row),
            property_bytes=self._value("stored_properties", row),
            sys_flag=sys_flag,
            born_timestamp=None if born == NO_TIME else born,
            born_host=LOCAL_HOST if host is None else parse_host(host),
            store_timestamp=None if stored == NO_TIME else stored,
            store_host=None if store_host is None else parse_host(store_host),
            reconsume_times=int(columns[Frame.RECONSUME_TIMES, row]),
            prepared_transaction_offset=int(columns[Frame.PREPARED, row]),
        )

    def _value(self, name: str, row: int) -> Any:
        return self._batch.column(name)[row].as_py() if name in self._batch.schema.names else None

    def _properties_of(self, row: int) -> dict[str, str]:
        pairs = self._value("properties", row)
        if pairs is None:
            keys, tags = self._value("keys", row), self._value("tags", row)
            pairs = [(names.KEYS, " ".join(map(_text, keys)))] if keys else []
            pairs += [] if tags is None else [(names.TAGS, tags)]
        found = {_text(name): _text(value) for name, value in pairs}
        if None in found.values():
            raise UsageError("a property without a value")
        return found


def _text(value: Any) -> Any:
    """Texts may come as bytes, which are known to be UTF-8 by now."""
    return value.decode("utf-8") if isinstance(value, bytes) else value
