"""UTF-8 and Java's hash of the compiled layer, by Python's own codec and formats.checksums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqctl.formats import checksums
from rmqctl.store.native.text import is_utf8, java_hash
from tests.store.native.forms import compiled_form, plain_form


def _python_takes(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary(max_size=40), st.integers(0, 12))
@example(b"\xed\xa0\x80", 0)
@example(b"\xf4\x90\x80\x80", 5)
@example(b"\xe0\x9f\xbf", 7)
@example(b"\xf0\x8f\xbf\xbf", 9)
def test_utf8_is_what_python_takes(data: bytes, before: int) -> None:
    assert is_utf8(b"a" * before + data) == _python_takes(data)


@given(st.text(max_size=12), st.integers(0, 40), st.integers(0, 8))
def test_characters_that_are_cut_or_changed(text: str, at: int, bit: int) -> None:
    data = bytearray(text.encode("utf-8"))
    if data:
        data[at % len(data)] ^= 1 << bit & 0xFF
    assert is_utf8(data) == _python_takes(bytes(data))
    assert is_utf8(data[:at]) == _python_takes(bytes(data[:at]))


@pytest.mark.parametrize("first", range(0x80, 0x100))
def test_every_character_of_two_bytes_and_every_begin_of_a_longer_one(first: int) -> None:
    for second in range(0x100):
        for tail in (b"", b"\x80", b"\xbf\x80", b"\x80\x80\x80"):
            data = bytes([first, second]) + tail
            assert is_utf8(data) == _python_takes(data), data


@given(st.text(max_size=40), st.text(max_size=40))
def test_the_hash_is_that_of_java_and_goes_on(first: str, second: str) -> None:
    begun = java_hash(0, first.encode("utf-8"))
    assert begun == checksums.java_hash(first)
    assert java_hash(begun, second.encode("utf-8")) == checksums.java_hash(first + second)


def test_what_is_no_utf8_has_no_hash() -> None:
    with pytest.raises(ValueError, match="UTF-8"):
        java_hash(0, b"\xff")


def test_hashes_of_spans_are_those_of_their_texts() -> None:
    text = b"an empty one, and one of more than eight bytes"
    spans = [(0, 0), (0, 2), (3, 8), (14, 46), (45, 46)]
    begins, ends = (np.array(side, np.int32) for side in zip(*spans, strict=True))
    for form, texts in ((plain_form, plain_form("text")), (compiled_form, compiled_form("text"))):
        found = np.zeros(len(spans), np.uint64)
        form("json_fields").hash_spans(7, np.frombuffer(text, np.uint8), begins, ends, found)
        assert found.tolist() == [texts.topic_hash(7, text[begin:end]) for begin, end in spans]
        with pytest.raises(IndexError):
            form("json_fields").hash_spans(7, np.zeros(2, np.uint8), begins, ends, found)
