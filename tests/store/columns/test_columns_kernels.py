"""Each kernel against its plain twin: UTF-8, hashes, comparing, searching, CRC, topics."""

from __future__ import annotations

import ctypes
import functools
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.checksums import crc32_definition, java_hash
from rmqctl.store.compiled.available import is_crc32
from rmqctl.store.log.column_walk import engine
from rmqctl.store.log.columns import TopicIds

pytest.importorskip("numba")

from rmqctl.store.columns import kernel_rows
from rmqctl.store.compiled import kernel_text
from rmqctl.store.compiled.kernel_crc import compile_crc_by_tables
from rmqctl.store.log.columns import PADDING

_Result = TypeVar("_Result")


def _callable(function: Any) -> Any:
    """A function that only kernels can call, compiled anew for Python."""
    import numba

    njit: Any = numba.njit
    return njit(_nrt=False)(function.py_func)


_NAMES = "is_utf8", "find_byte", "as_int", "hash_on", "same_bytes"
text = SimpleNamespace(**{name: _callable(getattr(kernel_text, name)) for name in _NAMES})
find_topic = _callable(kernel_rows.find_topic)
# pieces that lie on the edges of what UTF-8 allows
EDGES = st.sampled_from(
    [
        *(chr(point).encode() for point in (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)),
        *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf"),
        *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xff", b"\xe2\x82", b"\xf0\x9d\x84", b"\xc3"),
        b"eight by",
    ]
)
BYTES = st.one_of(
    st.binary(max_size=40), st.lists(EDGES, max_size=8).map(b"".join), st.text(max_size=20).map(str.encode)
)


def at_address(data: bytes, asked: Callable[[int], _Result], rest: int = 0xBF) -> _Result:
    """`asked` about the address of `data`, behind which lies what must not matter."""
    held = ctypes.create_string_buffer(data + bytes([rest]) * PADDING, len(data) + PADDING)
    return asked(ctypes.addressof(held))


def _is_utf8(length: int, address: int) -> bool:
    return bool(text.is_utf8(address, length))


def _find(topics: TopicIds, length: int, address: int) -> int:
    return int(find_topic(address, length, topics.slots, topics.entries, topics.text.ctypes.data, topics.seed))


@given(BYTES, st.sampled_from([0, 0x41, 0x80, 0xBF, 0xFF]))
def test_utf8_is_what_python_takes(data: bytes, rest: int) -> None:
    try:
        data.decode("utf-8")
        expected = True
    except UnicodeDecodeError:
        expected = False
    assert at_address(data, lambda address: text.is_utf8(address, len(data)), rest) == expected


def test_utf8_of_all_two_and_many_three_byte_sequences() -> None:
    for first in range(0x80, 0x100):
        for second in range(0x70, 0xD0):
            for tail in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf", b"a"):
                data = bytes([first, second]) + tail
                try:
                    data.decode("utf-8")
                    expected = True
                except UnicodeDecodeError:
                    expected = False
                length = len(data)
                assert at_address(data, functools.partial(_is_utf8, length)) == expected, data


@given(st.text(max_size=40), st.text(max_size=40))
def test_hash_is_javas(begin: str, rest: str) -> None:
    data = rest.encode()
    state = java_hash(begin)
    assert at_address(data, lambda address: text.as_int(text.hash_on(state, address, len(data)))) == java_hash(
        begin + rest
    )


@given(BYTES, BYTES, st.booleans())
def test_same_bytes(left: bytes, right: bytes, same: bool) -> None:
    right = left if same else right
    length = min(len(left), len(right))
    found = at_address(left, lambda one: at_address(right, lambda other: text.same_bytes(one, other, length), 7))
    assert found == (left[:length] == right[:length])


@given(st.lists(st.sampled_from(b"\x00\x01\x02\x03\x20\x82\xff"), max_size=40).map(bytes), st.sampled_from([2, 32]))
def test_find_byte(data: bytes, byte: int) -> None:
    pattern = int.from_bytes(bytes([byte]) * 8, "little")
    found = at_address(data, lambda address: text.find_byte(address, address + len(data), pattern) - address, byte)
    expected = data.find(byte)
    assert found == (expected if expected >= 0 else len(data))


def test_crc_of_every_rung() -> None:
    compiled = compile_crc_by_tables(1)
    assert is_crc32(lambda address, length: int(compiled.ctypes(0, address, length)))
    assert engine().crc_function
    pointer = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
    assert is_crc32(lambda address, length: int(pointer(engine().crc_function)(0, address, length)))
    assert not is_crc32(lambda address, length: 0)


@given(st.binary(max_size=1500), st.integers(0, 15))
def test_crc_by_tables(data: bytes, skipped: int) -> None:
    compiled = compile_crc_by_tables(1).ctypes
    held = ctypes.create_string_buffer(data, max(1, len(data)))
    rest = data[skipped:]
    found = compiled(0, ctypes.addressof(held) + min(skipped, len(data)), len(rest))
    assert found == zlib.crc32(rest) == crc32_definition(rest)


def test_crc_continued() -> None:
    compiled = compile_crc_by_tables(1).ctypes
    seed = zlib.crc32(b"first")
    assert at_address(b"second" * 9, lambda address: compiled(seed, address, 54)) == zlib.crc32(b"second" * 9, seed)


@given(st.lists(st.one_of(st.text(min_size=1, max_size=30), st.integers(0, 99).map("t{}".format)), max_size=200))
def test_topics_are_found_by_kernel_and_dictionary_alike(names: list[str]) -> None:
    topics = TopicIds()
    wanted = [name.encode() for name in names]
    for topic in wanted[::2]:
        assert topics.names[topics.id_of(topic)].encode() == topic
    for topic in wanted:
        known = topics.names.index(topic.decode()) if topic.decode() in topics.names else -1
        assert at_address(topic, functools.partial(_find, topics, len(topic))) == known
    assert len(topics) == len(set(wanted[::2]))


def test_a_topic_that_has_no_slot_is_not_found_and_still_known() -> None:
    topics = TopicIds()
    topics.slots[:] = topics.id_of(b"first")
    second = topics.id_of(b"second")
    assert second == 1
    assert topics.id_of(b"second") == 1
    assert np.all(topics.slots == 0)
    assert at_address(b"second", functools.partial(_find, topics, 6)) == -1
