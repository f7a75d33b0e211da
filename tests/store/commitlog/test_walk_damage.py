"""Damage made byte by byte: where the walk says it begins and ends, and what must not lead it astray."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.store.logs import BODY_AT, Change, blank, changed, damages, frame, frames, is_tiling, log_of, spans

# --- damage made byte by byte: three messages, the second one damaged -------------------------------------------------

BODIES = [b"first" * 10, b"second" * 30, b"third" * 10]
FIRST, SECOND, THIRD = frames(BODIES)
AT, NEXT = len(FIRST), len(FIRST) + len(SECOND)
END = NEXT + len(THIRD)


def _set(at: int, new: bytes) -> Change:
    return lambda data: changed(data, at, new)


def _number(at: int, value: int, code: str = "i") -> Change:
    return _set(at, struct.pack(">" + code, value))


def _flip(at: int) -> Change:
    return lambda data: changed(data, at, bytes([data[at] ^ 1]))


DAMAGES: dict[str, tuple[str, Change]] = {
    "flipped bit in the body": ("body_crc", _flip(BODY_AT + 3)),
    "flipped bit in the stored CRC": ("body_crc", _flip(8)),
    "size 0": ("size", _number(0, 0)),
    "size -1": ("size", _number(0, -1)),
    "size of the smallest integer": ("size", _number(0, -(1 << 31))),
    "huge size": ("size", _number(0, 0x7FFFFFFF)),
    "size beyond the file": ("size", _number(0, 100_000)),
    "size 4 bytes less": ("lengths", _number(0, len(SECOND) - 4)),
    "size 4 bytes more": ("lengths", _number(0, len(SECOND) + 4)),
    "size less than any message": ("size", _number(0, 91)),
    "wrong magic": ("magic", _number(4, 0x12345678)),
    "magic of the other version": ("lengths", _number(4, 0xDAA320AB, "I")),
    "magic of a blank frame": ("blank_size", _number(4, 0xCBD43194, "I")),
    "wrong physical offset": ("position", _number(28, AT + 1, "q")),
    "physical offset of the third message": ("position", _number(28, NEXT, "q")),
    "negative body length": ("lengths", _number(84, -1)),
    "huge body length": ("lengths", _number(84, 0x7FFFFFFF)),
    "body length 1 byte less": ("lengths", _number(84, len(BODIES[1]) - 1)),
    "topic length 0": ("lengths", _number(BODY_AT + len(BODIES[1]), 0, "b")),
    "no topic, and lengths that add up": ("lengths", _set(BODY_AT + len(BODIES[1]), b"\0\0\1x")),
    "negative topic length": ("lengths", _number(BODY_AT + len(BODIES[1]), -1, "b")),
    "topic length too large": ("lengths", _number(BODY_AT + len(BODIES[1]), 127, "b")),
    "topic is not UTF-8": ("topic", _set(BODY_AT + len(BODIES[1]) + 1, b"\xff")),
    "properties length 1": ("lengths", _number(len(SECOND) - 2, 1, "h")),
    "negative properties length": ("lengths", _number(len(SECOND) - 2, -1, "h")),
    "host flags of IPv6": ("lengths", _number(36, 0x30)),
    "all zeros": ("magic", lambda data: bytes(len(data))),
    "zeros but for the last byte": ("magic", lambda data: bytes(len(data) - 1) + b"x"),
    "all ones": ("magic", lambda data: b"\xff" * len(data)),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_between_good_messages(tmp_path: Path, what: str) -> None:
    reason, change = DAMAGES[what]
    log = log_of(tmp_path, FIRST + change(SECOND) + THIRD + bytes(50))
    assert spans(log) == [
        ("message", 0, AT),
        (reason, AT, NEXT),
        ("message", NEXT, END),
        ("empty", END, END + 50),
    ]
    [damage] = damages(log)
    assert damage.file == str(log.files[0].path)
    assert damage.detail


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_with_nothing_behind_it(tmp_path: Path, what: str) -> None:
    reason, change = DAMAGES[what]
    damaged = change(SECOND)
    found = spans(log_of(tmp_path, FIRST + damaged + bytes(500)))
    last = AT + len(damaged.rstrip(b"\0"))
    if what == "all zeros":
        assert found == [("message", 0, AT), ("empty", AT, NEXT + 500)]
        return
    assert [item[:2] for item in found] == [("message", 0), (reason, AT), ("empty", found[-1][1])]
    # the damage ends with its frame where that is known, else with the last byte that is not zero
    assert last <= found[-1][1] <= max(NEXT, AT + int.from_bytes(damaged[:2], "big") + 100_000)
    assert is_tiling(found, 0, NEXT + 500)


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_of_the_first_message(tmp_path: Path, what: str) -> None:
    first, second = frames([BODIES[1], BODIES[2]])
    reason, change = DAMAGES[what]
    # the damages are made for the second message; only its own offset differs here
    damaged = change(first)
    if "physical offset" in what:
        damaged = changed(first, 28, struct.pack(">q", 1))
    assert spans(log_of(tmp_path, damaged + second))[0] == (reason, 0, len(first))


def test_property_crc_covers_what_the_body_crc_does_not(tmp_path: Path) -> None:
    first = frame(0, b"1" * 50, with_property_crc=True, properties={"TAGS": "A"})
    second = frame(len(first), b"2" * 50, with_property_crc=True)
    # the queue offset is in no other checksum
    log = log_of(tmp_path, changed(first, 20, struct.pack(">q", 77)) + second)
    assert spans(log) == [
        ("property_crc", 0, len(first)),
        ("message", len(first), len(first) + len(second)),
    ]


def test_properties_that_are_not_utf8(tmp_path: Path) -> None:
    first = frame(0, properties={"TAGS": "AAAA"})
    second = frame(len(first))
    at = first.index(b"AAAA")
    found = spans(log_of(tmp_path, changed(first, at, b"\xc3\x28") + second))
    assert found == [("properties", 0, len(first)), ("message", len(first), len(first) + len(second))]


@pytest.mark.parametrize("kept", [1, 3, 4, 7, 8, 11, 40, 87, 88, 91, 100, len(SECOND) - 4])
@pytest.mark.parametrize("rest", [b"\0", b"\xee"])
def test_torn_tail(tmp_path: Path, kept: int, rest: bytes) -> None:
    found = spans(log_of(tmp_path, FIRST + (SECOND[:kept] + rest * 1000)[:1000]))
    assert found[0] == ("message", 0, AT)
    assert is_tiling(found, 0, AT + 1000)
    assert [kind for kind, _, _ in found].count("message") == 1
    if rest == b"\xee":
        assert len(found) == 2  # garbage reaches the file's end
    else:
        written = len(SECOND[:kept].rstrip(b"\0"))
        # the first bytes of a size may be zeros, which tell nothing
        assert found[-1][0] == "empty"
        # and so few of them may be left over from a buffer (store/log/walk.py)
        assert found[-1][1] >= AT + written or written < 12


# --- decoys: frames inside bodies, right in every respect, their own physical offset included ------------------------


def _with_decoy(damage: Change) -> tuple[bytes, bytes, bytes, int]:
    """A message whose body holds a whole good frame at its right place, damaged; then a good one."""
    decoy_at = BODY_AT + 16
    decoy = frame(decoy_at, b"decoy")
    outer = frame(0, b"." * 16 + decoy + b"." * 50)
    assert outer[decoy_at : decoy_at + len(decoy)] == decoy
    return damage(outer), frame(len(outer), b"after"), decoy, decoy_at


def test_decoy_in_a_good_message_is_not_seen(tmp_path: Path) -> None:
    outer, after, _, _ = _with_decoy(lambda data: data)
    assert spans(log_of(tmp_path, outer + after)) == [
        ("message", 0, len(outer)),
        ("message", len(outer), len(outer) + len(after)),
    ]


@pytest.mark.parametrize("behind", ["message", "damaged message", "blank", "empty", "end"])
def test_decoy_is_not_taken_where_the_frame_around_it_leads_on(tmp_path: Path, behind: str) -> None:
    outer, after, _, _ = _with_decoy(_flip(BODY_AT))
    follows = {
        "message": (after, ["message"]),
        "damaged message": (_flip(BODY_AT)(after), ["body_crc"]),
        "blank": (blank(30), ["blank"]),
        "empty": (bytes(30), ["empty"]),
        "end": (b"", []),
    }
    data, kinds = follows[behind]
    found = spans(log_of(tmp_path, outer + data))
    assert found[0] == ("body_crc", 0, len(outer))
    assert [kind for kind, _, _ in found[1:]] == kinds


def test_decoy_is_taken_where_nothing_else_is_known(tmp_path: Path) -> None:
    """With the size of the frame around it lost, a whole frame that knows its own place is the next good record: no
    byte tells that it was a body. The message behind is found as well."""
    outer, after, decoy, at = _with_decoy(_number(0, 0x7FFFFFF0))
    found = spans(log_of(tmp_path, outer + after))
    assert found == [
        ("size", 0, at),
        ("message", at, at + len(decoy)),
        (found[2][0], at + len(decoy), len(outer)),
        ("message", len(outer), len(outer) + len(after)),
    ]


def test_decoy_of_another_place_is_never_taken(tmp_path: Path) -> None:
    inner = frame(12345, b"a copy of some frame")
    outer = frame(0, inner)
    after = frame(len(outer))
    for change in (_flip(BODY_AT), _number(0, 0), _number(4, 0)):
        found = spans(log_of(tmp_path, change(outer) + after))
        assert [(first, end) for _, first, end in found] == [(0, len(outer)), (len(outer), len(outer) + len(after))]
