"""Law 7: nothing from a store reaches a terminal raw."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.output.table import visible, visible_json

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
# what must never come out: the categories without a glyph of their own, and default-ignorables outside of them
UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
IGNORABLE = "\u034f\u115f\u1160\u17b4\u180b\u3164\ufe0f\uffa0\U000e0100"
ESCAPE = re.compile(r"\\(?:[ntr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("TopicTest", "TopicTest"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x00\x07\x7f\x9b", r"\x00\x07\x7f\x9b"),
        ("abc\u202edef\u2066", r"abc\u202edef\u2066"),
        ("zero\u200bwidth\u200d\ufeff", r"zero\u200bwidth\u200d\ufeff"),
        ("line\u2028paragraph\u2029", r"line\u2028paragraph\u2029"),
        ("\ud800", r"\ud800"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("private\ue000", r"private\ue000"),
        ("中文 ünïcödé 😀 é", "中文 ünïcödé 😀 é"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_newlines_stay_on_request_and_only_they() -> None:
    assert visible("a\nb\tc\x1b", keep_newlines=True) == "a\nb\\tc\\x1b"


def test_every_code_point_without_a_glyph_is_escaped() -> None:
    everything = map(chr, range(sys.maxunicode + 1))
    unsafe = [character for character in everything if unicodedata.category(character) in UNSAFE_CATEGORIES]
    assert len(unsafe) > 100_000
    assert [hex(ord(c)) for c in [*unsafe, *IGNORABLE] if not ESCAPE.fullmatch(visible(c))] == []


def test_letters_marks_numbers_and_symbols_stay() -> None:
    kept = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character)[0] in "LNPS" and character not in IGNORABLE
    ]
    assert [hex(ord(c)) for c in kept if visible(c) != c] == []


@given(ANY_TEXT)
def test_what_comes_out_is_printable(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(character) for character in shown} & UNSAFE_CATEGORIES
    shown.encode()


@given(ANY_TEXT)
def test_a_json_document_keeps_its_meaning(text: str) -> None:
    document = visible_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert visible(document) == document
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert json.loads(document) == {expected: [expected]}
