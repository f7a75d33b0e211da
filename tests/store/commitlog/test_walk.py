"""The walker on every golden and on damage made byte by byte: what it yields, and what it must not be led to."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path

import pytest

from formats.errors import UnreadableError
from formats.message import StoredMessage, decode_message
from store.commitlog import walk as walk_module
from store.commitlog.walk import Damage, walk
from store.files.mapped_file_queue import MappedFileQueue
from tests.goldens import GOLDENS, base_of, golden, truth
from tests.opened import reader
from tests.store.logs import BODY_AT, Change, blank, changed, damages, frame, frames, is_tiling, log_of, opened, spans

# Damage in the goldens: (reason, first offset, end offset) of each span. 0: the end of the message that RocketMQ had
# stored there.
GOLDEN_DAMAGE = {
    "crc-flip-last": [("body_crc", 2106230, 0)],
    "crc-flip-last-abort": [("body_crc", 2106230, 0)],
    "crc-flip-old": [("body_crc", 402516, 0)],
    "crc-flip-old-abort": [("body_crc", 402516, 0)],
    "crc-flip-third": [("body_crc", 1695806, 0)],
    "gap": [("gap", 1048576, 1310720)],
    "short-last": [("short_file", 2247152, 2359296)],
    "short-middle": [("size", 667058, 674288), ("short_file", 674288, 786432)],
    "tail-garbage-clean": [("magic", 2135612, 2136389)],
    "torn-zero": [("lengths", 2135296, 0)],
    "torn-zero-clean": [("lengths", 2135296, 0)],
    "v4-crc-flip-last": [("body_crc", 2105616, 0)],
    "v4-crc-flip-last-abort": [("body_crc", 2105616, 0)],
    "v4-crc-flip-old": [("body_crc", 402371, 0)],
    "v4-gap": [("gap", 1048576, 1310720)],
    "v4-torn-garbage": [("lengths", 2134390, 0)],
}
LOG_GONE = ("log-gone", "log-gone-abort", "v4-log-gone")


def _log(name: str) -> MappedFileQueue:
    return reader(name).files.log


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    found = spans(_log(name))
    if name in LOG_GONE:
        assert found == []
        return
    log = _log(name)
    assert is_tiling(found, log.files[0].start_offset, log.files[-1].start_offset + log.file_size)
    known = truth(name)
    # what RocketMQ cut off stands in the truth of the store that this one was made from
    ends = {row["phyOffset"]: row["phyOffset"] + row["storeSize"] for row in truth(base_of(name) or name).messages}
    ends |= {row["phyOffset"]: row["phyOffset"] + row["storeSize"] for row in known.messages}
    damage = [(reason, first, end or ends[first]) for reason, first, end in GOLDEN_DAMAGE.get(name, [])]
    assert [item for item in found if item[0] not in ("message", "blank", "empty")] == damage
    expected = {place for place in ends.items() if not any(first <= place[0] < end for _, first, end in damage)}
    if name == "first-gone":
        expected = {place for place in expected if place[0] >= 524288}
    assert {(first, end) for kind, first, end in found if kind == "message"} == expected
    blanks = [(row["phyOffset"], row["size"]) for row in known.blanks]
    if known.summary["load"]:
        assert [(first, end - first) for kind, first, end in found if kind == "blank"] == blanks
    for first, second in itertools.pairwise(found):
        assert first[0] != "empty" or second[0] == "short_file" or second[1] % log.file_size == 0


@pytest.mark.parametrize("window", [300, 1024, 70_000])
@pytest.mark.parametrize("name", ["features", "longtopic", "propcrc", "innerbatch", "torn-zero", "crc-flip-third"])
def test_windows_do_not_matter(name: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(walk(_log(name)))
    monkeypatch.setattr(walk_module, "_WINDOW", window)
    assert list(walk(_log(name))) == expected


def test_walk_of_several_directories() -> None:
    assert [item[0] for item in spans(_log("multipath"))].count("message") == 1500


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
    first = frame(0, b"1" * 50, with_property_crc=True, TAGS="A")
    second = frame(len(first), b"2" * 50, with_property_crc=True)
    # the queue offset is in no other checksum
    log = log_of(tmp_path, changed(first, 20, struct.pack(">q", 77)) + second)
    assert spans(log) == [
        ("property_crc", 0, len(first)),
        ("message", len(first), len(first) + len(second)),
    ]


def test_properties_that_are_not_utf8(tmp_path: Path) -> None:
    first = frame(0, TAGS="AAAA")
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
        assert found[-1][1] >= AT + written


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


# --- blank frames, zeros, ends of files ----------------------------------------------------------------------------


def test_frame_that_ends_with_its_file(tmp_path: Path) -> None:
    second = frame(END, b"x")
    assert spans(log_of(tmp_path, FIRST + SECOND + THIRD, second + blank(END - len(second)))) == [
        ("message", 0, AT),
        ("message", AT, NEXT),
        ("message", NEXT, END),
        ("message", END, END + len(second)),
        ("blank", END + len(second), 2 * END),
    ]


@pytest.mark.parametrize("said", [0, -1, 8, 29, 31, 0x7FFFFFFF])
def test_blank_of_the_wrong_size(tmp_path: Path, said: int) -> None:
    found = spans(log_of(tmp_path, FIRST + blank(30, said), frame(AT + 30).ljust(AT + 30, b"\0")))
    assert [kind for kind, _, _ in found if kind != "empty"] == ["message", "blank_size", "message"]
    assert found[1][1] == AT
    assert is_tiling(found, 0, 2 * (AT + 30))


def test_shortest_blank(tmp_path: Path) -> None:
    assert spans(log_of(tmp_path, FIRST + blank(8)))[1:] == [("blank", AT, AT + 8)]


@pytest.mark.parametrize("left", [1, 4, 7])
def test_rest_too_short_for_any_frame(tmp_path: Path, left: int) -> None:
    assert spans(log_of(tmp_path, FIRST + bytes(left)))[1:] == [("empty", AT, AT + left)]
    found = spans(log_of(tmp_path, FIRST + bytes(left - 1) + b"x"))
    assert found[1:] == [("size", AT, AT + left)]


def test_garbage_behind_the_blank_frames_head_is_no_damage(tmp_path: Path) -> None:
    """RocketMQ never looks behind the eight bytes, and neither may the walk trip over what was there before."""
    assert spans(log_of(tmp_path, FIRST + blank(8, 30) + b"g" * 22)) == [("message", 0, AT), ("blank", AT, AT + 30)]


def test_one_byte_files(tmp_path: Path) -> None:
    assert spans(log_of(tmp_path, b"x")) == [("size", 0, 1)]
    assert spans(log_of(tmp_path, b"\0")) == [("empty", 0, 1)]
    assert spans(log_of(tmp_path, b"x", file_size=10)) == [("size", 0, 1), ("short_file", 1, 10)]


def test_no_files(tmp_path: Path) -> None:
    assert spans(opened(tmp_path)) == []
    assert spans(opened(tmp_path / "no such directory")) == []


def test_missing_file(tmp_path: Path) -> None:
    size = 1000
    first, third = frame(0).ljust(size, b"\0"), frame(2 * size).ljust(size, b"\0")
    log = log_of(tmp_path, first, bytes(size), third)
    log.files[1].path.unlink()
    found = spans(opened(tmp_path))
    assert ("gap", size, 2 * size) in found
    assert is_tiling(found, 0, 3 * size)
    # from inside the hole, and from behind it
    assert spans(opened(tmp_path), size + 10)[0] == ("gap", size + 10, 2 * size)
    assert spans(opened(tmp_path), 2 * size)[0][0] == "message"


def test_file_cut_short(tmp_path: Path) -> None:
    size = END + 100
    cut_at = NEXT + 12  # the last of these bytes is not zero
    data = FIRST + SECOND + THIRD + bytes(100)
    log = log_of(tmp_path, data, frame(size).ljust(size, b"\0"), bytes(size))
    os.truncate(log.files[0].path, cut_at)
    cut = opened(tmp_path, size)
    found = spans(cut)
    assert found[:4] == [
        ("message", 0, AT),
        ("message", AT, NEXT),
        ("size", NEXT, cut_at),
        ("short_file", cut_at, size),
    ]
    assert found[4][:2] == ("message", size)
    assert spans(cut, NEXT + 30)[0] == ("short_file", NEXT + 30, size)


def test_file_that_is_too_long_does_not_count_twice(tmp_path: Path) -> None:
    size = AT + 30
    log_of(tmp_path, FIRST + blank(30), frame(size).ljust(size, b"\0"))
    with (tmp_path / "0".zfill(20)).open("ab") as file:
        file.write(b"garbage")
    found = spans(opened(tmp_path, size))
    assert found[:3] == [("message", 0, AT), ("blank", AT, size), ("message", size, found[2][2])]
    assert is_tiling(found, 0, 2 * size)


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (0, ["message", "message", "message", "empty"]),
        (AT, ["message", "message", "empty"]),
        (AT + 1, ["damage", "message", "empty"]),
        (NEXT - 1, ["damage", "message", "empty"]),
        (END, ["empty"]),
        (END + 49, ["empty"]),
        (END + 50, []),
        (END + 1000, []),
    ],
)
def test_walk_from_the_middle(tmp_path: Path, begin: int, expected: list[str]) -> None:
    found = spans(log_of(tmp_path, FIRST + SECOND + THIRD + bytes(50)), begin)
    good = ("message", "empty")
    assert [kind if kind in good else "damage" for kind, _, _ in found] == expected
    assert is_tiling(found, begin, max(begin, END + 50))


@pytest.mark.parametrize("name", ["clean", "crc-flip-third", "gap"])
def test_walk_from_any_message_of_a_golden(name: str) -> None:
    whole = spans(_log(name))
    for place in range(0, len(whole), 211):
        assert spans(_log(name), whole[place][1]) == whole[place:]


def test_crc_is_checked_from_a_given_offset_on() -> None:
    log = _log("crc-flip-third")
    assert not [record for record in walk(log, crc_from=1695807) if isinstance(record, Damage)]
    bad = [record for record in walk(log, crc_from=1695806) if isinstance(record, Damage)]
    assert [record.physical_offset for record in bad] == [1695806]


@pytest.mark.parametrize("name", ["clean", "gap", "short-middle", "multipath"])
def test_progress_adds_up_to_the_bytes_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "_WINDOW", 50_000)
    passed: list[int] = []
    for _ in walk(_log(name), progress=passed.append):
        pass
    assert sum(passed) == sum(file.size for file in _log(name).files)
    assert len(passed) > 10
    assert min(passed) >= 0


# --- a store that changes or holds strange things -----------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 40, 200, 30_000, 150_000])
def test_file_that_shrinks_under_the_walk(tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "_WINDOW", 1000)
    store = golden("innerbatch", tmp_path)
    log = opened(store / "commitlog")
    records = walk(log)
    for _ in range(3):
        next(records)
    os.truncate(log.files[0].path, left)
    with pytest.raises(UnreadableError, match="shorter") as error:
        list(records)
    assert error.value.file == str(log.files[0].path)


def test_file_that_is_gone_under_the_walk(tmp_path: Path) -> None:
    log = log_of(tmp_path, FIRST + bytes(100), bytes(AT + 100))
    records = walk(log)
    assert next(records).physical_offset == 0
    log.files[1].path.unlink()
    with pytest.raises(UnreadableError):
        list(records)


def test_frame_written_while_the_walk_stands_before_it(tmp_path: Path) -> None:
    """A broker appends to the last file: what was zeros when the window was read is a frame now, not damage."""
    log = log_of(tmp_path, FIRST + SECOND + bytes(1000))
    records = walk(log)
    next(records)
    with log.files[0].path.open("r+b") as file:
        file.seek(NEXT)
        file.write(THIRD)
    assert [type(record) for record in records][:2] == [StoredMessage, StoredMessage]


def test_strange_files_do_not_hang(tmp_path: Path) -> None:
    log_of(tmp_path, FIRST + bytes(100))
    os.mkfifo(tmp_path / str(AT + 100).zfill(20))
    os.symlink("/dev/zero", tmp_path / str(2 * (AT + 100)).zfill(20))
    os.symlink(tmp_path / "nowhere", tmp_path / str(9 * (AT + 100)).zfill(20))
    log = opened(tmp_path)
    assert sorted(problem.kind for problem in log.problems) == ["stray", "stray", "unreadable"]
    assert [kind for kind, _, _ in spans(log)] == ["message", "empty"]


def test_link_to_a_commitlog_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(FIRST)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0".zfill(20)).symlink_to(tmp_path / "elsewhere")
    assert spans(opened(tmp_path / "log")) == [("message", 0, AT)]


def test_messages_are_those_that_decoding_gives() -> None:
    log = _log("features")
    data = b"".join(file.path.read_bytes() for file in log.files)
    for record in walk(log):
        if isinstance(record, StoredMessage):
            assert record == decode_message(data, record.physical_offset, record.total_size, record.physical_offset)
