"""Java's string hash on UTF-16 units, and the codes made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.checksums import java_hash, key_hash, tags_code
from tests.goldens import truth


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        # one UTF-16 unit
        ("é", 0xE9),
        ("标", 0x6807),
        # a surrogate pair: D83D DE00
        ("\U0001f600", 31 * 0xD83D + 0xDE00),
        # a lone surrogate, which Java strings may hold
        ("\ud83d", 0xD83D),
    ],
)
def test_known_values(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@given(st.text(st.characters(codec=None), max_size=60))
def test_against_the_definition(text: str) -> None:
    units: list[int] = []
    for character in text:
        code = ord(character)
        if code < 0x10000:
            units.append(code)
        else:
            units += [0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code - 0x10000 & 0x3FF)]
    value = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units)) % (1 << 32)
    assert java_hash(text) == (value - (1 << 32) if value >= 1 << 31 else value)


def test_the_hash_is_a_signed_int_beyond_ascii_too() -> None:
    assert java_hash("标签" * 50) in range(-(1 << 31), 1 << 31)


@pytest.mark.parametrize("tags", [None, ""])
def test_no_tag_has_code_0(tags: str | None) -> None:
    assert tags_code(tags) == 0


def test_the_code_of_a_tag_is_that_of_the_whole_text() -> None:
    assert tags_code("TagA") == 2598919
    assert tags_code("TagA || TagB") == java_hash("TagA || TagB")


@pytest.mark.parametrize("name", ["clean", "v4-clean", "features"])
def test_tag_codes_that_rocketmq_computed(name: str) -> None:
    rows = [row for row in truth(name).messages if row["topic"] != "SCHEDULE_TOPIC_XXXX"]
    assert len(rows) > 200
    for row in rows:
        assert tags_code(row["tags"]) == row["dispatchTagsCode"]


def test_a_key_s_hash_is_made_of_topic_and_key_and_never_negative() -> None:
    assert key_hash("T", "k") == abs(java_hash("T#k"))
    negative = next(f"k{number}" for number in range(1000) if java_hash(f"T#k{number}") < 0)
    assert key_hash("T", negative) == -java_hash(f"T#{negative}")


def test_the_one_hash_without_an_absolute_value_becomes_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.formats.checksums.java_hash", lambda _: -(1 << 31))
    assert key_hash("any", "key") == 0


@pytest.mark.parametrize("value", [-(1 << 31) + 1, -1, 0, 1, (1 << 31) - 2, (1 << 31) - 1])
def test_every_other_hash_has_one(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.formats.checksums.java_hash", lambda _: value)
    assert key_hash("any", "key") == abs(value)
