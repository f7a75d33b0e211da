"""Which messages are meant: each criterion by itself, at both of its ends, and what is said of one that is none."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.compression import compress
from rmqctl.formats.errors import UsageError
from rmqctl.formats.layouts import COMPRESSION_SHIFT, SYS_FLAG_COMPRESSED
from rmqctl.formats.message import StoredMessage, decode_message
from rmqctl.formats.properties import COMPRESSION_ZLIB
from rmqctl.store.read.filter import Criteria, Grep, TagFilter, TopicFilter, message_keys, newest_first
from tests.store.logs import frame

TIME = 1_700_000_000_000
PACKED = SYS_FLAG_COMPRESSED | COMPRESSION_ZLIB << COMPRESSION_SHIFT


def stored(body: bytes = b"body", properties: Mapping[str, str] | None = None, **fields: Any) -> StoredMessage:
    data = frame(fields.pop("physical_offset", 0), body, properties=properties, store_timestamp=TIME, **fields)
    return decode_message(data, 0, len(data), None)


@pytest.mark.parametrize("expression", [None, "", "  ", "*", " * "])
def test_no_text_and_a_star_mean_every_message(expression: str | None) -> None:
    tags = TagFilter(expression)
    assert tags.is_all
    assert tags.tags == frozenset()
    assert tags.may_match(5)
    assert tags.matches(None)
    assert tags.matches("a")
    assert tags.matches_stored(b"KEYS\x01k\x02")
    # nothing of them is read
    assert tags.matches_stored(b"TAGS\x01\xff\x02")


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="names no tag") as caught:
        TagFilter(expression)
    assert repr(expression) in caught.value.message
    assert caught.value.hint == "write it as 'TagA || TagB'"


def test_the_first_look_compares_the_low_32_bits_of_the_hash() -> None:
    # the last has a hash below zero
    for tag in ("TagA", "标签1", "delivered"):
        tags, code = TagFilter(tag), java_hash(tag)
        assert [tags.may_match(one) for one in (code, code + (1 << 32), code - (1 << 32))] == [True] * 3
        assert [tags.may_match(one) for one in (code + 1, -code - 1, 0)] == [False] * 3
        # a code that nobody could find out decides nothing
        assert tags.may_match(None)
    assert {java_hash(tag) < 0 for tag in ("TagA", "delivered")} == {False, True}


@pytest.mark.parametrize(
    ("properties", "matches"),
    [
        (b"TAGS\x01a\x02", True),
        (b"TAGS\x01a", True),
        (b"KEYS\x01k\x02TAGS\x01a\x02UNIQ_KEY\x01u\x02", True),
        (b"KEYS\x01a\x02TAGS\x01b\x02", False),
        (b"TAGS\x01ab\x02", False),
        (b"TAGS\x01aa", False),
        (b"XTAGS\x01a\x02", False),
        (b"KEYS\x01TAGS\x01a\x02", False),
        (b"TAGS\x01a\x02TAGS\x01b\x02", False),
        (b"TAGS\x01b\x02TAGS\x01a\x02", True),
        (b"KEYS\x01a\x02", False),
        (b"", False),
    ],
)
def test_the_second_look_at_stored_properties(properties: bytes, matches: bool) -> None:
    assert TagFilter("a || c").matches_stored(properties) == matches


def test_keys_are_the_unique_one_and_every_word() -> None:
    assert message_keys({"UNIQ_KEY": "u", "KEYS": "a b"}) == ["u", "a", "b"]
    assert message_keys({"KEYS": "a"}) == ["a"]
    assert message_keys({"UNIQ_KEY": "u"}) == ["u"]
    assert message_keys({"TAGS": "a"}) == []


def test_grep_looks_into_bodies_and_properties() -> None:
    message = stored("Bestellung für A-17".encode(), {"KEYS": "k1", "note": "late"})
    for found in ("für", "A-1[0-9]$", "^KEYS=k1$", "note=", "=late"):
        assert Grep(found).matches(message), found
    for missing in ("fur", "k1 ", "KEYS=k2", "^late", "TAGS="):
        assert not Grep(missing).matches(message), missing


def test_grep_takes_bodies_as_they_were_sent_and_else_as_they_are() -> None:
    packed = stored(compress(b"what was sent " * 9, COMPRESSION_ZLIB), sys_flag=PACKED)
    assert Grep("what was sent").matches(packed)
    # it says that it is compressed, and is not
    assert Grep("plain text").matches(stored(b"plain text", sys_flag=PACKED))
    # bytes that are no UTF-8 are in nobody's way
    assert Grep("end$").matches(stored(b"\xff\xfe end"))


def test_what_is_no_expression_is_refused_and_what_only_looks_odd_is_not_warned_of() -> None:
    with pytest.raises(UsageError, match=r"'a\(' is not a regular expression: ") as caught:
        Grep("a(")
    assert caught.value.hint is not None
    assert "put \\ before" in caught.value.hint
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Grep("[[a]b").matches(stored(b"[b"))


def test_one_topic_is_known() -> None:
    assert Criteria("T").topic == "T"
    assert Criteria(TopicFilter(["T", "U"])).topic is None
    assert Criteria().topic is None


MEANT: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"topic": "T"}, True),
    ({"topic": "U"}, False),
    ({"topic": TopicFilter(["U", "T*"])}, True),
    ({"topic": TopicFilter(["U"])}, False),
    ({"queue_id": 3}, True),
    ({"queue_id": 2}, False),
    ({"queue_id": 0}, False),
    ({"tags": "a"}, True),
    ({"tags": "b || c"}, False),
    ({"key": "k1"}, True),
    ({"key": "unique"}, True),
    ({"key": "k"}, False),
    ({"begin_time": TIME}, True),
    ({"begin_time": TIME + 1}, False),
    ({"end_time": TIME}, True),
    ({"end_time": TIME - 1}, False),
    ({"begin_time": TIME, "end_time": TIME}, True),
    ({"grep": "bo"}, True),
    ({"grep": "nobody"}, False),
    ({"key": "k1", "tags": "b"}, False),
    ({"key": "k", "tags": "a"}, False),
    ({"key": "k1", "grep": "nobody"}, False),
    ({"key": "k", "grep": "bo"}, False),
    ({"tags": "b", "grep": "bo"}, False),
    ({"tags": "a", "grep": "bo", "key": "k2", "queue_id": 3, "topic": "T"}, True),
]


@pytest.mark.parametrize(("chosen", "is_meant"), MEANT)
def test_a_message_is_meant_that_meets_all_that_is_asked_for(chosen: dict[str, Any], is_meant: bool) -> None:
    message = stored(b"body", {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "unique"}, queue_id=3)
    criteria = Criteria(**chosen)
    assert criteria.matches(message) == is_meant
    assert criteria.matches_all == (not chosen)
    assert criteria.needs_content == bool({"tags", "key", "grep"} & chosen.keys())
    # whatever its topic and queue are, as in the queues of a message that stands in several
    rest = Criteria(**{name: value for name, value in chosen.items() if name not in ("topic", "topics", "queue_id")})
    assert criteria.matches_content(message) == rest.matches(message)


def test_a_message_without_keys_and_tags_is_not_meant_by_any() -> None:
    for chosen in ({"key": "k"}, {"tags": "a"}, {"key": ""}):
        assert not Criteria(**chosen).matches(stored())  # type: ignore[arg-type]  # names of its parameters
    assert Criteria(tags="*").matches_all


def test_what_is_asked_for_is_told_by_name() -> None:
    assert Criteria().described() == {}
    assert Criteria("T", 0, "a", "k", 0, 9, grep="g").described() == {
        "topic": "T", "queue_id": 0, "tags": "a", "key": "k", "begin_time": 0, "end_time": 9, "grep": "g"
    }  # fmt: skip
    several = Criteria(TopicFilter(["T", "U*"], system_topics=False))
    assert several.described() == {"topics": ["T", "U*"], "system_topics": False}
    assert Criteria(TopicFilter(["U*"])).described() == {"topics": ["U*"]}


def test_the_newest_comes_first() -> None:
    messages = [stored(physical_offset=offset) for offset in (5, 900, 17)]
    assert [one.physical_offset for one in newest_first(messages)] == [900, 17, 5]
