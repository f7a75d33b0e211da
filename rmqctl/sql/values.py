"""Rows of an Arrow table as values that JSON, CSV and tables can print, whatever Spark's types were."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rmqctl.output.times import format_time

if TYPE_CHECKING:
    import pyarrow as pa

_Row = dict[str, Any]

_ROWS = 1000
_MICROS = 1000
_LARGEST_EXACT = 1 << 53


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, each but once: `n`, `n_2`, `n_3`."""
    found: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def printable_rows(table: pa.Table) -> Iterator[_Row]:
    """Rows for tables and CSV: times as ISO 8601 in UTC, bytes as text where they are UTF-8, else as hex with 0x."""
    yield from _rows(table, _text_or_hex)


def json_rows(table: pa.Table) -> Iterator[_Row]:
    """Rows for JSON: the same, but bytes that are no UTF-8 as base64, and the name of such a value with `_base64`."""
    for row in _rows(table, _text_or_base64):
        if any(isinstance(value, _Base64) for value in row.values()):
            yield {f"{name}_base64" if isinstance(value, _Base64) else name: value for name, value in row.items()}
        else:
            yield row


class _Base64(str):
    """Bytes that are no text."""


def _text_or_hex(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _text_or_base64(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _Base64(base64.b64encode(data).decode("ascii"))


def _rows(table: pa.Table, of_bytes: Any) -> Iterator[_Row]:
    names = unique_names(table.schema.names)
    for batch in table.to_batches(max_chunksize=_ROWS):
        columns = [_values(column, of_bytes) for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _values(array: pa.Array, of_bytes: Any) -> list[Any]:
    """The values of an array, None for null."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_timestamp(kind):
        # as numbers: Python's own dates end with the year 9999
        micros = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).to_pylist()
        return [None if value is None else _time(value, kind.tz is not None) for value in micros]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else of_bytes(value) for value in array.to_pylist()]
    if pa.types.is_map(kind):
        keys, items = _values(array.keys, of_bytes), _values(array.items, of_bytes)
        return [None if span is None else _object(keys[span], items[span]) for span in _spans(array)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = _values(array.values, of_bytes)
        return [None if span is None else elements[span] for span in _spans(array)]
    if pa.types.is_struct(kind):
        names = unique_names([field.name for field in kind])
        fields = [_values(array.field(number), of_bytes) for number in range(kind.num_fields)]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return list(map(_plain, array.to_pylist()))


def _spans(array: pa.Array) -> Iterator[slice | None]:
    """Where the elements of each list stand among all elements."""
    offsets = array.offsets.to_pylist()
    for number, valid in enumerate(array.is_valid().to_pylist()):
        yield slice(offsets[number], offsets[number + 1]) if valid else None


def _object(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    return {str(key): value for key, value in zip(keys, values, strict=True)}


def _time(micros: int, is_moment: bool) -> str:
    milliseconds, rest = divmod(micros, _MICROS)
    text = format_time(milliseconds)
    if not text.endswith("Z"):
        return text
    return text[:-1] + (f"{rest:03d}" if rest else "") + ("Z" if is_moment else "")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < _LARGEST_EXACT:
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return str(value)
