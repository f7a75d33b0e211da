"""The walker on every golden and on damage made byte by byte: what it yields, and what it must not be led to."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import Reason, StoredMessage, decode_message
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log import walk as walk_module
from rmqctl.store.log.walk import Damage, walk
from tests.goldens import GOLDENS, base_of, golden, truth
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.logs import blank, bytes_to_read, frame, frames, is_tiling, log_of, opened, spans

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


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
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


FIRST, SECOND, THIRD = frames([b"first" * 10, b"second" * 30, b"third" * 10])
AT, NEXT = len(FIRST), len(FIRST) + len(SECOND)
END = NEXT + len(THIRD)


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


def test_file_of_no_bytes_is_not_called_missing(tmp_path: Path) -> None:
    size = 1000
    log = log_of(tmp_path, *(frame(start).ljust(size, b"\0") for start in range(0, 5 * size, size)))
    log.files[1].path.write_bytes(b"")
    log.files[3].path.unlink()
    for begin in (0, size + 10):
        empty, missing = (one for one in walk(opened(tmp_path), begin) if isinstance(one, Damage))
        assert (empty.end, empty.detail) == (2 * size, "a commitlog file has no bytes")
        assert empty.file == str(log.files[1].path)
        assert (missing.physical_offset, missing.detail) == (3 * size, "a commitlog file is missing")


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
    assert sum(passed) == bytes_to_read(_log(name))
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
    """The last one is no cleaner's work: it is missing."""
    log = log_of(tmp_path, FIRST + bytes(100), bytes(AT + 100))
    gone = log.files[1]
    records = walk(log)
    assert next(records).physical_offset == 0
    gone.path.unlink()
    damage = [record for record in records if isinstance(record, Damage)]
    assert [(one.reason, one.physical_offset, one.file) for one in damage] == [
        (Reason.GAP, gone.start_offset, str(gone.path))
    ]


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
