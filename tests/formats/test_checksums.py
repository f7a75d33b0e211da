"""CRCs: the fast ones against the executable definition, masks and digits as RocketMQ stores them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.checksums import (
    CRC_MASK,
    PROPERTY_CRC_SIZE,
    body_crc,
    frame_crc,
    parse_property_crc,
    property_crc_text,
)
from tests.formats.frames import crc32_definition

# the standard check value of CRC-32
CHECK = b"123456789"


def test_the_definition_is_the_standard_crc_32() -> None:
    assert crc32_definition(CHECK) == 0xCBF43926
    assert body_crc(CHECK) == 0xCBF43926 & 0x7FFFFFFF == 0x4BF43926


def test_the_body_of_the_worked_example() -> None:
    assert body_crc(b"hello") == 0x3610A686


@given(st.binary(max_size=3000))
def test_fast_and_defined_crcs_agree(data: bytes) -> None:
    expected = crc32_definition(data) & 0x7FFFFFFF
    assert body_crc(data) == expected
    assert frame_crc(data) == expected
    assert body_crc(bytearray(data)) == body_crc(memoryview(data)) == expected


def test_no_body_has_crc_0() -> None:
    assert body_crc(b"") == body_crc(memoryview(b"")) == 0


def test_the_property_is_twenty_bytes_with_its_digits_reversed() -> None:
    assert property_crc_text(724196366) == b"__CRC32#\x016636914270\x02"
    assert PROPERTY_CRC_SIZE == 20
    assert property_crc_text(0) == b"__CRC32#\x010000000000\x02"
    assert property_crc_text(CRC_MASK) == b"__CRC32#\x017463847412\x02"


@given(st.integers(0, CRC_MASK))
def test_property_round_trip(crc: int) -> None:
    text = property_crc_text(crc)
    assert len(text) == PROPERTY_CRC_SIZE
    assert parse_property_crc(text) == crc


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"__CRC32#\x016636914270",
        b"__CRC31#\x016636914270\x02",
        b"__CRC32#\x026636914270\x02",
        b"x" * 20,
        b"__CRC32#\x016636914270\x01",
    ],
)
def test_other_tails_are_no_crc(tail: bytes) -> None:
    assert parse_property_crc(tail) is None


@pytest.mark.parametrize(
    "digits", [b"663691427x", b"          ", b"-636914270", b"8463847412", b"9999999999", b"\xb2636914270"]
)
def test_digits_that_cannot_be_a_crc_are_wrong_and_not_absent(digits: bytes) -> None:
    assert parse_property_crc(b"__CRC32#\x01" + digits + b"\x02") == -1
