"""Record batches of messages as lines of JSON or CSV: the same text as `message_json` makes of each message by itself.

Importing this module imports pyarrow. The plain twin is `message_json` with `json.dumps` or `csv.writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.messages import text_arrays as text
from rmqctl.messages.message_json import ALL_COLUMNS, EXACT_COLUMNS, JSON_ORDER


class _Messages:
    """The columns of a batch, and what several fields are made of."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.column = batch.column

    @cached_property
    def plain_body(self) -> pa.Array:
        """Bodies that are texts. One that could not be unpacked is none, whatever its bytes look like."""
        body = text.utf8_texts(self.column("body"))
        failed = self.column("body_error").is_valid()
        return pc.if_else(failed, None, body) if failed.true_count else body

    @cached_property
    def binary_body(self) -> pa.Array:
        """All other bodies as base64."""
        is_text = self.plain_body.is_valid()
        body = self.column("body")
        return text.base64_texts(pc.if_else(is_text, None, body) if is_text.true_count else body)


Make = Callable[[_Messages], pa.Array]


class _Field(NamedTuple):
    """A field of a line: the columns of the batch it is made from, and how `json` and `csv` write it.

    `quote`: what stands around it in JSON. A null is no field at all in JSON where the field `may_be_absent`, `null`
    elsewhere, and an empty field of CSV.
    """

    needs: tuple[str, ...]
    json: Make
    csv: Make
    quote: str = ""
    may_be_absent: bool = False


def _bare(name: str, make: Callable[[pa.Array], pa.Array], quote: str = "") -> _Field:
    """A field with nothing in it that is to be escaped."""

    def made(messages: _Messages) -> pa.Array:
        return make(messages.column(name))

    return _Field((name,), made, made, quote)


def _text(name: str, may_be_absent: bool = False) -> _Field:
    return _Field(
        (name,),
        lambda messages: text.json_texts(messages.column(name)),
        lambda messages: text.csv_texts(messages.column(name)),
        '"',
        may_be_absent,
    )


def _base64(name: str) -> _Field:
    return _bare(name, text.base64_texts, '"')._replace(may_be_absent=True)


def _nested(name: str, make: Callable[[pa.Array, text.Nested], pa.Array], begin: str, end: str) -> _Field:
    """Lists or objects. Those of nothing need no quotes in CSV."""

    def json(messages: _Messages) -> pa.Array:
        return pc.binary_join_element_wise(begin, make(messages.column(name), text.IN_JSON), end, "")

    def csv(messages: _Messages) -> pa.Array:
        made = make(messages.column(name), text.IN_CSV)
        quoted = pc.binary_join_element_wise('"' + begin, made, end + '"', "")
        return pc.if_else(pc.equal(pc.binary_length(made), 0), begin + end, quoted)

    return _Field((name,), json, csv)


_BODY = ("body", "body_error")
_FIELDS: dict[str, _Field] = {
    "msg_id": _text("msg_id"),
    "unique_key": _text("unique_key"),
    "topic": _text("topic"),
    "queue_id": _bare("queue_id", text.numbers),
    "queue_offset": _bare("queue_offset", text.numbers),
    "physical_offset": _bare("physical_offset", text.numbers),
    "size": _bare("size", text.numbers),
    "store_timestamp": _bare("store_timestamp", text.numbers),
    "store_time": _bare("store_timestamp", text.time_texts, '"'),
    "born_timestamp": _bare("born_timestamp", text.numbers),
    "born_time": _bare("born_timestamp", text.time_texts, '"'),
    "store_host": _text("store_host"),
    "born_host": _text("born_host"),
    "sys_flag": _bare("sys_flag", text.numbers),
    "flag": _bare("flag", text.numbers),
    "transaction": _text("transaction"),
    "compression": _text("compression"),
    "body_crc": _bare("body_crc", text.numbers),
    "crc_ok": _bare("crc_ok", lambda values: values.cast(pa.string())),
    "reconsume_times": _bare("reconsume_times", text.numbers),
    "prepared_transaction_offset": _bare("prepared_transaction_offset", text.numbers),
    "tags": _text("tags"),
    "keys": _nested("keys", text.json_lists, "[", "]"),
    "properties": _nested("properties", text.json_maps, "{", "}"),
    "properties_base64": _base64("stored_properties"),
    "body_size": _bare("body_size", text.numbers),
    "body": _Field(
        _BODY,
        lambda messages: text.json_texts(messages.plain_body),
        lambda messages: text.csv_texts(messages.plain_body),
        '"',
        may_be_absent=True,
    ),
    "body_base64": _Field(
        _BODY, lambda messages: messages.binary_body, lambda messages: messages.binary_body, '"', may_be_absent=True
    ),
    "body_error": _text("body_error", may_be_absent=True),
    "stored_body_base64": _base64("stored_body"),
}


class MessageLines:
    """Makes lines of batches that have the columns `needs`. `header` begins every file."""

    def __init__(self, names: Sequence[str] | None, *, is_json: bool) -> None:
        """`names`: fields of `message_json`, none of them twice; None: all. CSV unless `is_json`."""
        self._is_json = is_json
        self._names = tuple(names or (JSON_ORDER if self._is_json else (*ALL_COLUMNS, *EXACT_COLUMNS)))
        self.needs = tuple(dict.fromkeys(need for name in self._names for need in _FIELDS[name].needs))
        self.header = "" if self._is_json else ",".join(self._names) + "\n"

    def lines(self, batch: pa.RecordBatch) -> memoryview:
        """The lines of all messages of a batch, UTF-8."""
        messages = _Messages(batch)
        made = self._json(messages) if self._is_json else self._csv(messages)
        _, offsets, data = made.buffers()
        if not len(made) or data is None:
            return memoryview(b"")
        edges = memoryview(offsets).cast("i")
        return memoryview(data)[edges[made.offset] : edges[made.offset + len(made)]]

    def _json(self, messages: _Messages) -> pa.Array:
        parts: list[Any] = []
        # a field that may be absent takes the comma before it along: where that is the first one, it is cut off again
        is_first_sure = not _FIELDS[self._names[0]].may_be_absent
        for place, name in enumerate(self._names):
            field = _FIELDS[name]
            comma = "" if place == 0 and is_first_sure else ", "
            parts += _json_parts(f'{comma}"{name}": ', field.json(messages), field)
        if is_first_sure:
            return text.joined(["{", *parts, "}\n"])
        # even if no field is in any of them there are as many lines
        fields = text.joined([pa.repeat("", len(messages.column(self.needs[0]))), *parts])
        return text.joined(["{", pc.utf8_slice_codeunits(fields, 2), "}\n"])

    def _csv(self, messages: _Messages) -> pa.Array:
        parts: list[Any] = []
        for name in self._names:
            made = _FIELDS[name].csv(messages)
            parts += [made.fill_null("") if made.null_count else made, ","]
        parts[-1] = "\n"
        if len(self._names) == 1:  # a line of nothing would be no line
            parts[0] = pc.if_else(pc.equal(pc.binary_length(parts[0]), 0), '""', parts[0])
        return text.joined(parts)


def _json_parts(before: str, value: pa.Array, field: _Field) -> list[Any]:
    """What a line consists of for one field, `before` first. Long values are copied once, with the line."""
    parts = [before + field.quote, value, field.quote]
    if not value.null_count:
        return parts
    if field.may_be_absent:
        return [] if value.null_count == len(value) else [pc.binary_join_element_wise(*parts, "")]
    quoted = pc.binary_join_element_wise(field.quote, value, field.quote, "")
    return [before, quoted.fill_null("null")]
