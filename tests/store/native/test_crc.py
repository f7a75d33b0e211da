"""CRC-32 of compiled modules: isal's, and the one by tables, both as zlib's."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from rmqctl.store.native.crc import crc32
from tests.formats.frames import crc32_definition


@given(st.binary(max_size=300), st.integers(0, 20))
def test_every_way_gives_the_crc_of_zlib(data: bytes, begin: int) -> None:
    for by_tables in (False, True):
        assert crc32(memoryview(data)[begin:], by_tables) == zlib.crc32(data[begin:]) == crc32_definition(data[begin:])


def test_lengths_around_a_step() -> None:
    data = bytes(range(1, 251)) * 40
    for length in (*range(40), 4095, 9999, 10000):
        assert crc32(data[:length], True) == crc32(data[:length]) == zlib.crc32(data[:length])
