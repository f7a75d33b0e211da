"""Troubles that people had with the commitlog's bytes: each made from a sound store, with the code it must give.

Test ids begin with the number of the trouble in the project's list of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.catalogue import Finding, Severity
from rmqctl.store.check.cross import Level
from tests.goldens import GoldenStore, tree_state
from tests.store.check.breaking import HEAD, LOG_FILE_SIZE, bare, checked, codes, flip, get, messages, put, put_field

ERROR, WARNING, NOTICE = Severity.ERROR, Severity.WARNING, Severity.NOTICE
BRIDGE, RECOVER = "rmqctl recover --bridge", "rmqctl recover"
FLAG = "rmqctl repair --only RMQ-LOG-032"


class Pain(NamedTuple):
    """`make` breaks the golden and returns the physical offset where the finding has to be; None where it has none."""

    name: str
    base: str
    make: Callable[[Path], int | None]
    code: str
    severity: Severity
    fix: str | None
    level: Level = Level.DEFAULT


def _nth(store: Path, number: int) -> StoredMessage:
    return messages(store)[number]


def _size(store: Path) -> int:
    message = _nth(store, 700)
    put_field(store, message.physical_offset, "total_size", 2_000_000_000)
    return message.physical_offset


def _magic(store: Path) -> int:
    message = _nth(store, 700)
    put(store, message.physical_offset + HEAD.offset("magic_code"), b"\xef\xff\x00\x01")
    return message.physical_offset


def _another_place(store: Path) -> int:
    """A frame of an older time where another of the same size stood."""
    kept: dict[int, StoredMessage] = {}
    for message in messages(store)[200:]:
        older = kept.setdefault(message.total_size, message)
        if older is not message:
            put(store, message.physical_offset, get(store, older.physical_offset, older.total_size))
            return message.physical_offset
    raise AssertionError("no two messages have one size")


def _lengths(store: Path) -> int:
    message = _nth(store, 700)
    put_field(store, message.physical_offset, "body_length", len(message.body) + 1)
    return message.physical_offset


def _body(store: Path) -> int:
    message = next(message for message in messages(store)[700:] if len(message.body) > 10)
    return flip(store, message, HEAD.size)


def _frame_crc(store: Path) -> int:
    """The reconsume count of a frame with __CRC32#: no other checksum covers it."""
    message = _nth(store, 50)
    return flip(store, message, HEAD.offset("reconsume_times") + 3)


def _topic(store: Path) -> int:
    message = _nth(store, 700)
    put(store, message.physical_offset + HEAD.size + len(message.body) + 1, b"\xff")
    return message.physical_offset


def _properties_end(store: Path) -> int:
    message = _nth(store, 700)
    put(store, message.end - 3, b"\xff")
    return message.physical_offset


def _blank(store: Path) -> int:
    """The frame that fills the second file."""
    last = [message for message in messages(store) if message.physical_offset < 2 * LOG_FILE_SIZE][-1]
    size = int.from_bytes(get(store, last.end, 4), "big")
    put(store, last.end, (size - 8).to_bytes(4, "big"))
    return last.end


def _lost_page(store: Path) -> int:
    """From a page's start to a file's end nothing reached the disk."""
    message = next(message for message in messages(store) if message.physical_offset > 3 * LOG_FILE_SIZE + 100_000)
    put(store, message.physical_offset, bytes(4 * LOG_FILE_SIZE - message.physical_offset))
    return message.physical_offset


def _torn_properties(store: Path) -> int:
    """The body is there and its checksum right, what follows is zeros."""
    last = _nth(store, -1)
    begin = HEAD.size + len(last.body)
    put(store, last.physical_offset + begin, bytes(last.total_size - begin))
    return last.physical_offset


def _zero_properties(store: Path, number: int) -> int:
    """Lengths and topic are right, the properties were never written: every checksum holds."""
    message = _nth(store, number)
    put(store, message.end - len(message.property_bytes), bytes(len(message.property_bytes)))
    return message.physical_offset


def _zero_topic(store: Path) -> None:
    message = _nth(store, 100)
    topic = message.topic.encode()
    put(store, message.physical_offset + HEAD.size + len(message.body) + 1, bytes(len(topic)))


def _named(topic: bytes) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        message = next(one for one in messages(store) if len(one.topic.encode()) == len(topic))
        put(store, message.physical_offset + HEAD.size + len(message.body) + 1, topic)

    return make


def _client_crc(store: Path) -> int:
    """Another writer stores 0 where the checksum should be."""
    message = next(message for message in messages(store)[300:] if message.body)
    put_field(store, message.physical_offset, "body_crc", 0)
    return message.physical_offset


def _body_with_crc_0(length: int) -> bytes:
    """Some text, and four bytes that bring its CRC to 0."""
    text = b"the checksum of this is zero ".ljust(length - 4, b".")
    register = zlib.crc32(text) ^ 0xFFFFFFFF
    # four bytes that lead the register to 0xFFFFFFFF, found backwards through the table
    table = [_entry(index) for index in range(256)]
    wanted, indexes = 0xFFFFFFFF, []
    for _ in range(4):
        index = next(number for number, entry in enumerate(table) if entry >> 24 == wanted >> 24)
        indexes.append(index)
        wanted = (wanted ^ table[index]) << 8 & 0xFFFFFFFF
    tail = bytearray()
    for index in reversed(indexes):
        tail.append((index ^ register) & 0xFF)
        register = table[index] ^ register >> 8
    return text + bytes(tail)


def _entry(index: int) -> int:
    value = index
    for _ in range(8):
        value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
    return value


def _right_crc_of_0(store: Path) -> int:
    message = next(message for message in messages(store)[300:] if len(message.body) > 40)
    body = _body_with_crc_0(len(message.body))
    assert zlib.crc32(body) == 0
    put(store, message.physical_offset + HEAD.size, body)
    put_field(store, message.physical_offset, "body_crc", 0)
    return message.physical_offset


def _garbage_behind(store: Path) -> int:
    end = _nth(store, -1).end
    put(store, end, b"\x13\x37" * 200)
    return end


def _recycled(store: Path) -> int:
    """What stood there when the file belonged to another stretch of the log: good frames with other offsets."""
    all_messages = messages(store)
    end = all_messages[-1].end
    old = all_messages[100:120]
    put(store, end, get(store, old[0].physical_offset, old[-1].end - old[0].physical_offset))
    return end


def _not_compressed(store: Path) -> int:
    message = next(message for message in messages(store)[300:] if len(message.body) > 10)
    put_field(store, message.physical_offset, "sys_flag", message.sys_flag | 0x301)
    return message.physical_offset


PAINS = [
    Pain("19-illegal-magic", "clean", _magic, "RMQ-LOG-002", ERROR, BRIDGE),
    Pain("19-impossible-size", "clean", _size, "RMQ-LOG-001", ERROR, BRIDGE),
    Pain("14-frame-of-another-place", "clean", _another_place, "RMQ-LOG-003", ERROR, BRIDGE),
    Pain("14-recycled-file", "clean", _recycled, "RMQ-LOG-014", WARNING, RECOVER),
    Pain("15-torn-properties", "clean", _torn_properties, "RMQ-LOG-011", ERROR, RECOVER),
    Pain("15-properties-never-written", "clean", lambda s: _zero_properties(s, -1), "RMQ-LOG-016", ERROR, None),
    Pain(
        "15-never-written-inside", "clean", lambda s: _zero_properties(s, 900), "RMQ-LOG-016", ERROR, None, Level.FULL
    ),
    Pain("15-topic-never-written", "clean", _zero_topic, "RMQ-LOG-016", ERROR, None),
    Pain("15-no-checksum-over-heads", "clean", lambda _: None, "RMQ-LOG-017", NOTICE, None, Level.FULL),
    Pain("16-crc-of-0", "clean", _right_crc_of_0, "RMQ-LOG-022", NOTICE, None, Level.FULL),
    Pain("17-frame-crc", "propcrc", _frame_crc, "RMQ-LOG-006", ERROR, BRIDGE),
    Pain("18-crc-of-another-writer", "clean", _client_crc, "RMQ-LOG-021", ERROR, "rmqctl repair --only RMQ-LOG-021"),
    Pain("23-lost-pages", "clean", _lost_page, "RMQ-LOG-010", ERROR, BRIDGE),
    Pain("74-parent-folder", "clean", _named(b"../TopicT"), "RMQ-LOG-018", ERROR, None),
    Pain("74-nul-in-a-name", "clean", _named(b"Topic\0est"), "RMQ-LOG-018", ERROR, None),
    Pain("74-too-long", "longtopic-toolong", lambda _: None, "RMQ-LOG-019", NOTICE, None),
    Pain("xx-lengths", "clean", _lengths, "RMQ-LOG-004", ERROR, BRIDGE),
    Pain("xx-body", "clean", _body, "RMQ-LOG-005", ERROR, BRIDGE),
    Pain("xx-topic-is-no-text", "clean", _topic, "RMQ-LOG-007", ERROR, BRIDGE),
    Pain("xx-properties-are-no-text", "clean", _properties_end, "RMQ-LOG-008", ERROR, BRIDGE),
    Pain("xx-blank", "clean", _blank, "RMQ-LOG-009", ERROR, BRIDGE),
    Pain("xx-garbage-behind", "clean", _garbage_behind, "RMQ-LOG-012", WARNING, RECOVER),
    Pain("xx-not-compressed", "clean", _not_compressed, "RMQ-LOG-032", WARNING, FLAG, Level.FULL),
]


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: pain.name)
def test_pain(pain: Pain, golden_store: GoldenStore) -> None:
    store = bare(golden_store(pain.base))
    physical_offset = pain.make(store)
    before = tree_state(store)
    findings, summary = checked(store, pain.level)
    found = [finding for finding in findings if finding.code == pain.code]
    assert found, codes(findings)
    assert found[0].severity is pain.severity
    assert found[0].fix == pain.fix
    if physical_offset is not None:
        assert [finding.physical_offset for finding in found] == [physical_offset]
    # nothing else of the log is blamed
    others = {code for code in codes(findings) if code.startswith("RMQ-LOG") and code != "RMQ-LOG-017"}
    assert others <= {pain.code}
    assert bool(summary.alarms) >= pain.severity.is_alarm
    assert tree_state(store) == before


def _of(findings: list[Finding], code: str) -> Finding:
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def test_many_damages_are_all_told(golden_store: GoldenStore) -> None:
    store = bare(golden_store("clean"))
    wanted = []
    for message in messages(store)[10:2400:37]:
        if message.body:
            wanted.append(flip(store, message, HEAD.size))
    findings, summary = checked(store)
    assert [finding.physical_offset for finding in findings if finding.code == "RMQ-LOG-005"] == wanted
    assert summary.messages == 2500 - len(wanted)


def test_the_frame_still_names_its_queue(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    message = next(message for message in messages(store)[700:] if len(message.body) > 10)
    flip(store, message, HEAD.size)
    findings, _ = checked(store)
    finding = _of(findings, "RMQ-LOG-005")
    assert (finding.topic, finding.queue_id) == (message.topic, message.queue_id)
    assert (finding.bytes, finding.messages, finding.data_lost) == (message.total_size, 1, True)
    assert finding.expected == message.body_crc
    assert finding.found != message.body_crc
