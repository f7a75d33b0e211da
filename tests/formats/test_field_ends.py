"""Every integer field of every layout at its two ends, and the casts, hashes and ids that are made to fit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from rmqctl.formats import layouts
from rmqctl.formats.checksums import java_hash, java_int, java_long, key_hash, parse_int, parse_long, parse_short
from rmqctl.formats.layout import Layout
from rmqctl.formats.message import (
    Host,
    Message,
    decode_message,
    format_offset_message_id,
    frame_bytes,
    parse_offset_message_id,
    prepare_frame,
)

SHORT, INT, LONG = 1 << 15, 1 << 31, 1 << 63
LAYOUTS = [value for value in vars(layouts).values() if isinstance(value, Layout)]
HOST = Host(bytes([127, 0, 0, 1]), 10911)


def ends(code: str, size: int) -> tuple[int, int] | None:
    """Return the least and the largest value of a field; None where it is not an integer."""
    if code.lower() not in "bhiq":
        return None
    half = 1 << (8 * size - 1)
    return (0, 2 * half - 1) if code.isupper() else (-half, half - 1)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_field_holds_both_ends_and_nothing_beyond(layout: Layout) -> None:
    usual: list[Any] = [bytes(size) if ends(code, size) is None else 0 for _, code, _, size in layout.fields]
    tried = 0
    for place, (_, code, offset, size) in enumerate(layout.fields):
        limits = ends(code, size)
        if limits is None:
            continue
        for value, beyond in zip(limits, (limits[0] - 1, limits[1] + 1), strict=True):
            packed = layout.struct.pack(*usual[:place], value, *usual[place + 1 :])
            assert layout.unpack_from(packed)[place] == value
            assert int.from_bytes(packed[offset : offset + size], "big", signed=not code.isupper()) == value
            with pytest.raises(struct.error):
                layout.struct.pack(*usual[:place], beyond, *usual[place + 1 :])
            tried += 1
    assert tried or all(ends(code, size) is None for _, code, _, size in layout.fields)


@pytest.mark.parametrize("end", [0, -1])
def test_a_frame_holds_the_ends_of_its_fields(end: int) -> None:
    number, long = (-INT, -LONG) if end == 0 else (INT - 1, LONG - 1)
    message = Message(
        "T", b"x", number, flag=number, born_timestamp=long, born_host=HOST._replace(port=number),
        reconsume_times=number, prepared_transaction_offset=long,
    )  # fmt: skip
    parts = prepare_frame(message, HOST._replace(port=number), long)
    data = frame_bytes(parts, long, long, long)
    found = decode_message(data, 0, len(data), None)
    assert (found.queue_id, found.flag, found.reconsume_times) == (number, number, number)
    assert (found.queue_offset, found.physical_offset, found.store_timestamp, found.born_timestamp) == (long,) * 4
    assert (found.born_host.port, found.store_host.port, found.prepared_transaction_offset) == (number, number, long)


@pytest.mark.parametrize(
    ("value", "cast"),
    [
        (0, 0), (INT - 1, INT - 1), (INT, -INT), (2 * INT - 1, -1), (2 * INT, 0), (-INT, -INT), (-INT - 1, INT - 1),
        (31 * 86_400_000 - 1, 31 * 86_400_000 - 1 - 2 * INT),
    ],
)  # fmt: skip
def test_a_cast_to_int_wraps(value: int, cast: int) -> None:
    assert java_int(value) == cast


@pytest.mark.parametrize(("value", "cast"), [(LONG - 1, LONG - 1), (LONG, -LONG), (-LONG - 1, LONG - 1), (-1, -1)])
def test_a_long_wraps(value: int, cast: int) -> None:
    assert java_long(value) == cast


def test_the_hash_of_a_key_fits_where_java_has_no_absolute_value() -> None:
    """The hash of this topic and key is Integer.MIN_VALUE, whose absolute value no int holds."""
    length = 7
    wanted = (INT - java_hash("T#") * pow(31, length)) % (1 << 32)
    units: list[str] = []
    for _ in range(length):
        wanted, unit = divmod(wanted, 31)
        units.insert(0, chr(unit))
    assert wanted == 0
    key = "".join(units)
    assert java_hash(f"T#{key}") == -INT
    assert key_hash("T", key) == 0


@pytest.mark.parametrize("offset", [0, 1, INT - 1, INT, LONG - 1])
def test_an_offset_id_reads_back(offset: int) -> None:
    for port in (0, 65_535, INT - 1):
        assert parse_offset_message_id(format_offset_message_id(HOST._replace(port=port), offset)) == (
            HOST._replace(port=port),
            offset,
        )


# as Long.parseLong, Integer.parseInt and Short.parseShort of OpenJDK answer
TEXTS_OF_NUMBERS = {
    "+5": 5,
    "-0": 0,
    "٣": 3,
    "５": 5,
    "0" * 5000 + "5": 5,
    **{str(end): end for end in (SHORT - 1, SHORT, -SHORT, -SHORT - 1, INT - 1, INT, -INT, -INT - 1, LONG - 1, -LONG)},
    **dict.fromkeys(("", "+", "-", "+-5", "5-", "1_0", " 5", "5 ", "²", "𝟏", "1,000", "5.0", "x", "9" * 5000), None),
    **dict.fromkeys((str(LONG), str(-LONG - 1)), None),
}


@pytest.mark.parametrize(("parse", "end"), [(parse_short, SHORT), (parse_int, INT), (parse_long, LONG)])
def test_numbers_in_texts_are_those_that_java_reads(parse: Callable[[str], int | None], end: int) -> None:
    for text, number in TEXTS_OF_NUMBERS.items():
        assert parse(text) == (number if number is not None and -end <= number < end else None), text
