"""Queues of 20-byte units: goldens against RocketMQ's own view, holes and lost files, and appending."""

from __future__ import annotations

import itertools
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE, ConsumeQueue
from rmqctl.store.queues.unit import PLACEHOLDER_SIZE, QueueUnit
from tests.goldens import GOLDENS, base_of, is_crashed, properties, truth
from tests.opened import reader
from tests.quick import goldens_of

PER_FILE = 10
FILE_SIZE = PER_FILE * 20

INTACT = [
    name
    for name in GOLDENS
    if base_of(name) is None and not is_crashed(name) and properties(name).get("store.storeType") != "defaultRocksDB"
]


def _queue(folder: Path, file_size: int | None = FILE_SIZE) -> ConsumeQueue:
    queue = ConsumeQueue("T", 0, folder, file_size, Descriptors())
    queue.load()
    return queue


def _packed(physical_offset: int, size: int = 100, code: int = 7) -> bytes:
    return struct.pack(">qiq", physical_offset, size, code)


def _written(folder: Path, units: list[bytes], first: int = 0) -> ConsumeQueue:
    """A queue of files with these units from slot `first` (a file's first slot) on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(0, max(1, len(units)), PER_FILE):
        data = b"".join(units[number : number + PER_FILE]).ljust(FILE_SIZE, b"\0")
        (folder / f"{(first + number) * 20:020d}").write_bytes(data)
    return _queue(folder)


def _unit(slot: int, physical_offset: int | None = None) -> QueueUnit:
    return QueueUnit(slot, slot * 100 if physical_offset is None else physical_offset, 100, 7)


@pytest.mark.parametrize("name", goldens_of(INTACT))
def test_ends_and_units_of_intact_goldens(name: str) -> None:
    files = reader(name).files
    compared = 0
    for row in truth(name).queues:
        queue = files.queues.find(row["topic"], row["queueId"])
        if queue is None:
            # 4.9.8 lists queues of the schedule topic that it has not made yet
            assert (row["min"], row["max"]) == (0, 0)
            continue
        assert (queue.min_offset(files.log.min_offset), queue.max_offset) == (row["min"], row["max"])
        assert len(list(queue.units(row["min"]))) == row["units"]
        compared += 1
    assert compared > 20


@pytest.mark.parametrize(
    ("name", "topic", "expected"),
    [
        # the first file is lost; the rest of its log is there
        ("cq-truncated", "%RETRY%GroupA", (100, 259)),
        ("cq-truncated", "%DLQ%GroupA", (0, 210)),
        ("cq-truncated", "topic-with-dash", (0, 300)),
        # the log's first two files are gone, the queues' files are not
        ("first-gone", "TopicTest", None),
        ("clean", "TopicTest", None),
    ],
)
def test_ends_of_broken_goldens(name: str, topic: str, expected: tuple[int, int] | None) -> None:
    files = reader(name).files
    queue = files.queues.find(topic, 0)
    assert queue is not None
    [row] = [row for row in truth(name).queues if (row["topic"], row["queueId"]) == (topic, 0)]
    found = (queue.min_offset(files.log.min_offset), queue.max_offset)
    assert found == (row["min"], row["max"])
    if expected is not None:
        assert found[0] == expected[0]
        assert found[1] == expected[1]


def test_file_size_is_taken_from_the_files(tmp_path: Path) -> None:
    _written(tmp_path, [_packed(0)] * 25)
    queue = _queue(tmp_path, None)
    assert queue.files.file_size == FILE_SIZE
    assert queue.max_offset == 25


# --- holes, placeholders, lost files ----------------------------------------------------------------------------------

EMPTY = bytes(20)
PLACEHOLDER = struct.pack(">qiq", 0, PLACEHOLDER_SIZE, 0)


def test_the_end_is_the_last_byte_that_is_not_zero(tmp_path: Path) -> None:
    assert _written(tmp_path / "a", [_packed(n) for n in range(13)]).max_offset == 13
    # a message at physical offset 0 without tags: only its size is not zero
    assert _written(tmp_path / "b", [_packed(0, 100, 0)]).max_offset == 1
    assert _written(tmp_path / "c", [EMPTY, EMPTY, b"\1" + bytes(19)]).max_offset == 3
    assert _written(tmp_path / "d", [EMPTY, bytes(19) + b"\1"]).max_offset == 2


def test_files_of_zeros_at_the_end_hold_no_unit(tmp_path: Path) -> None:
    queue = _written(tmp_path, [_packed(n) for n in range(7)] + [EMPTY] * 30)
    assert len(queue.files.files) == 4
    assert queue.max_offset == 7  # RocketMQ would see a phantom unit in the last file


def test_queue_of_zeros(tmp_path: Path) -> None:
    queue = _written(tmp_path, [EMPTY] * 10, first=30)
    assert (queue.first_slot, queue.max_offset, queue.min_offset(0)) == (30, 30, 30)
    assert list(queue.units(0)) == []


def test_queue_without_files(tmp_path: Path) -> None:
    queue = _queue(tmp_path / "none")
    assert (queue.first_slot, queue.max_offset, queue.min_offset(0), queue.unit(0)) == (0, 0, 0, None)
    assert list(queue.units(0)) == []


@pytest.mark.parametrize("minimum", [0, 1, 100, 450, 500, 600, 601, 1150, 1200, 1500, 1501, 9999])
def test_minimum_with_holes_and_placeholders(tmp_path: Path, minimum: int) -> None:
    """However the queue is torn, the minimum is the first unit whose message is in the log, or nonsense before it:
    that may have been one as well."""
    whole = [_packed(slot * 100) for slot in range(16)]
    torn = {
        "whole": {},
        "placeholders first": dict.fromkeys(range(5), PLACEHOLDER),
        "hole in the middle": dict.fromkeys(range(6, 11), EMPTY),
        "holes": dict.fromkeys([0, 1, 4, 7, 8, 9, 12, 14], EMPTY),
        "all but the last": dict.fromkeys(range(15), EMPTY),
        "wild units": {5: _packed(-5), 8: _packed(10**9, -1), 12: _packed(5, PLACEHOLDER_SIZE)},
    }
    for what, changes in torn.items():
        units = [changes.get(slot, packed) for slot, packed in enumerate(whole)]
        left = [slot for slot in range(16) if slot not in changes and slot * 100 >= minimum]
        while what == "wild units" and left and left[0] - 1 in changes:
            left.insert(0, left[0] - 1)
        queue = _written(tmp_path / what, units)
        assert queue.min_offset(minimum) == (left[0] if left else 16), what
        assert queue.min_offset(minimum) == (left[0] if left else 16), what


def test_lost_file_in_the_middle(tmp_path: Path) -> None:
    _written(tmp_path, [_packed(slot * 100) for slot in range(35)])
    (tmp_path / f"{10 * 20:020d}").unlink()
    queue = _queue(tmp_path)
    assert [unit.queue_offset for unit in queue.units(0)] == [*range(10), *range(20, 35)]
    assert [unit.queue_offset for unit in queue.units(8, 22)] == [8, 9, 20, 21]
    assert queue.unit(9) == _unit(9)
    assert queue.unit(10) is None
    assert (queue.min_offset(0), queue.min_offset(950), queue.min_offset(1500), queue.max_offset) == (0, 20, 20, 35)
    assert [problem.kind for problem in queue.files.problems] == ["gap"]


def test_file_cut_in_the_middle_of_a_unit(tmp_path: Path) -> None:
    _written(tmp_path, [_packed(slot * 100) for slot in range(10)])
    file = tmp_path / ("0" * 20)
    file.write_bytes(file.read_bytes()[:110])
    queue = _queue(tmp_path)
    assert [unit.queue_offset for unit in queue.units(0)] == [0, 1, 2, 3, 4]
    assert queue.unit(5) is None
    assert queue.min_offset(0) == 0


def test_a_file_that_is_removed_while_the_queue_is_read(tmp_path: Path) -> None:
    """Its slots are left out as those of any missing file; where the queue ends is found without it."""
    _written(tmp_path, [_packed(slot * 100) for slot in range(25)])
    queue = _queue(tmp_path)
    files = sorted(tmp_path.iterdir())
    files[0].unlink()
    assert [unit.queue_offset for unit in queue.units(0)] == list(range(10, 25))
    other = _queue(tmp_path)
    files[2].unlink()
    assert other.max_offset == 20


def test_a_file_that_is_cut_short_while_the_queue_is_read(tmp_path: Path) -> None:
    _written(tmp_path, [_packed(slot * 100) for slot in range(25)])
    queue = _queue(tmp_path)
    assert queue.max_offset == 25
    first = min(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:70])
    assert [unit.queue_offset for unit in queue.units(0)] == [0, 1, 2, *range(10, 25)]


def test_a_run_of_units_is_of_one_file_and_ends_where_these_do(tmp_path: Path) -> None:
    packed = [_packed(slot * 100) for slot in range(35)]
    queue = _written(tmp_path, packed)
    for begin, count, end in ((0, 32, 10), (3, 4, 7), (9, 1, 10), (10, 32, 20), (34, 32, 35), (35, 1, 35), (36, 9, 36)):
        assert queue.unit_run(begin, count) == b"".join(packed[begin:end]), begin
        run = next(queue.unit_bytes(begin, begin + count), (begin, b""))
        assert run == (begin, queue.unit_run(begin, count))
    files = sorted(tmp_path.iterdir())
    files[0].write_bytes(files[0].read_bytes()[:70])
    assert queue.unit_run(1, 9) == b"".join(packed[1:3])
    files[2].unlink()  # not opened yet, as the others are
    assert queue.unit_run(22, 3) == queue.unit_run(22, 3) == b""
    assert queue.unit_run(-1, 3) == b""


# --- appending --------------------------------------------------------------------------------------------------------


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name.lstrip("0") or "0": path.read_bytes() for path in sorted(folder.iterdir())}


def test_appending_rolls_to_the_next_file(tmp_path: Path) -> None:
    folder = tmp_path / "T" / "0"
    queue = _queue(folder)
    for slot in range(23):
        queue.append(_unit(slot))
        assert queue.max_offset == slot + 1
        assert queue.unit(slot) == _unit(slot)
    queue.close()
    files = _bytes(folder)
    assert [*files] == ["0", "200", "400"]
    data = b"".join(files.values())
    assert data == b"".join(_packed(slot * 100) for slot in range(23)) + EMPTY * 7
    assert _queue(folder).max_offset == 23


def test_a_file_that_is_full_is_flushed_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name it is flushed only if somebody says so; its descriptor would stay open as long as the process."""
    flushed: list[str] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync":
            flushed.append(path)

    queue = _queue(tmp_path / "q")
    monkeypatch.setattr(io, "observer", look)
    for slot in range(PER_FILE):
        queue.append(_unit(slot))
    first = str(tmp_path / "q" / ("0" * 20))
    assert first not in flushed
    for end in (PER_FILE, PER_FILE + 1):
        queue.append(_unit(end))
        assert flushed.count(first) == 1
        open_files = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
        assert first not in open_files
        assert open_files.count(str(tmp_path / "q" / f"{FILE_SIZE:020d}")) == 1
    queue.release()
    assert not [path for path in flushed if path.endswith(str(FILE_SIZE))]
    queue.append(_unit(PER_FILE + 2))
    queue.close()
    assert flushed[-1] == str(tmp_path / "q" / f"{FILE_SIZE:020d}")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(1, 35)), max_size=6))
def test_runs_leave_what_single_units_leave(runs: list[tuple[int, int]]) -> None:
    """Runs of this many units behind gaps of that many slots."""
    with tempfile.TemporaryDirectory() as folder:
        single, queue = _queue(Path(folder, "single")), _queue(Path(folder, "runs"))
        end = 0
        for gap, length in runs:
            units = [_unit(slot) for slot in range(end + gap, end + gap + length)]
            for unit in units:
                single.append(unit)
            queue.append_run(end + gap, b"".join(_packed(unit.physical_offset) for unit in units))
            end += gap + length
            assert queue.max_offset == single.max_offset == end
        single.close()
        queue.close()
        assert not runs or _bytes(Path(folder, "runs")) == _bytes(Path(folder, "single"))


def test_appending_to_a_queue_that_has_units(tmp_path: Path) -> None:
    queue = _written(tmp_path, [_packed(slot * 100) for slot in range(13)])
    queue.append(_unit(13))
    queue.close()
    assert list(_queue(tmp_path).units(0)) == [_unit(slot) for slot in range(14)]


@pytest.mark.parametrize(
    ("first", "files"), [(3, ["0"]), (10, ["200"]), (19, ["200"]), (27, ["400"]), (100_000, ["2000000"])]
)
def test_a_queue_that_begins_later(tmp_path: Path, first: int, files: list[str]) -> None:
    """ConsumeQueue#fillPreBlank: placeholders from the start of the file to the first unit."""
    folder = tmp_path / "new"
    queue = _queue(folder)
    assert queue.min_offset(0) == 0
    queue.append(_unit(first, 5000))
    queue.close()
    assert [*_bytes(folder)] == files
    for seen in (queue, _queue(folder)):
        begin = first - first % PER_FILE
        assert [unit.is_placeholder for unit in seen.units(0)] == [True] * (first - begin) + [False]
        assert (seen.first_slot, seen.max_offset, seen.min_offset(0)) == (begin, first + 1, first)
        assert seen.unit(first) == _unit(first, 5000)


def test_a_gap_is_filled_with_placeholders(tmp_path: Path) -> None:
    queue = _written(tmp_path, [_packed(slot * 100) for slot in range(8)])
    queue.append(_unit(24))
    queue.close()
    found = list(_queue(tmp_path).units(0))
    assert [unit.queue_offset for unit in found] == list(range(25))
    assert [unit.is_placeholder for unit in found] == [False] * 8 + [True] * 16 + [False]


def test_minimum_follows_a_queue_that_goes_on_behind_a_gap(tmp_path: Path) -> None:
    queue = _written(tmp_path, [_packed(slot * 100) for slot in range(8)])
    assert queue.min_offset(100_000) == 8  # nothing of it is left in the log
    queue.append(_unit(24, 200_000))
    assert queue.min_offset(100_000) == 24
    queue.close()


def test_units_are_never_overwritten(tmp_path: Path) -> None:
    queue = _written(tmp_path, [_packed(slot * 100) for slot in range(8)])
    before = _bytes(tmp_path)
    for slot in (0, 7):
        with pytest.raises(WriteFailedError, match="does not follow") as failed:
            queue.append(_unit(slot, 9999))
        assert failed.value.file == str(tmp_path)
    queue.close()
    assert _bytes(tmp_path) == before


def test_a_new_queue_without_any_size_has_rocketmqs(tmp_path: Path) -> None:
    queue = _queue(tmp_path / "new", None)
    queue.append(_unit(0))
    queue.close()
    assert (tmp_path / "new" / ("0" * 20)).stat().st_size == DEFAULT_FILE_SIZE == 6_000_000


def test_appended_units_are_those_of_rocketmq(tmp_path: Path) -> None:
    """Every queue of a golden written anew, unit by unit, is the same byte for byte."""
    for name, queue in itertools.islice(_golden_queues(), 0, None, 7):
        copy = _queue(tmp_path / name / queue.topic / str(queue.queue_id), 2000)
        for unit in queue.units(0):
            copy.append(unit)
        copy.close()
        original = {path.name.lstrip("0") or "0": path.read_bytes() for path in sorted(queue.directory.iterdir())}
        assert _bytes(copy.directory) == original


def _golden_queues() -> list[tuple[str, ConsumeQueue]]:
    return [
        (name, queue)
        for name in ("clean", "features", "lmq", "cqext")
        for queue in reader(name).files.queues.all()
        if isinstance(queue, ConsumeQueue) and queue.max_offset
    ]
