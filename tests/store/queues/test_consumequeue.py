"""Queues of 20-byte units: goldens against RocketMQ's own view, holes and lost files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, ConsumeQueue, QueueUnit
from tests.goldens import GOLDENS, base_of, is_crashed, properties, truth
from tests.opened import reader
from tests.quick import goldens_of

PER_FILE = 10
FILE_SIZE = PER_FILE * 20
EMPTY = bytes(20)

INTACT = [
    name
    for name in GOLDENS
    if base_of(name) is None and not is_crashed(name) and properties(name).get("store.storeType") != "defaultRocksDB"
]


def queue_at(folder: Path, file_size: int | None = FILE_SIZE) -> ConsumeQueue:
    queue = ConsumeQueue("T", 0, folder, file_size, Descriptors())
    queue.load()
    return queue


def packed_unit(physical_offset: int, size: int = 100, code: int = 7) -> bytes:
    return struct.pack(">qiq", physical_offset, size, code)


def written_queue(folder: Path, units: list[bytes], first: int = 0) -> ConsumeQueue:
    """A queue of files with these units from slot `first` (a file's first slot) on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(0, max(1, len(units)), PER_FILE):
        data = b"".join(units[number : number + PER_FILE]).ljust(FILE_SIZE, b"\0")
        (folder / f"{(first + number) * 20:020d}").write_bytes(data)
    return queue_at(folder)


def unit_of(slot: int, physical_offset: int | None = None) -> QueueUnit:
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
    written_queue(tmp_path, [packed_unit(0)] * 25)
    queue = queue_at(tmp_path, None)
    assert queue.files.file_size == FILE_SIZE
    assert queue.max_offset == 25


# --- holes, placeholders, lost files ----------------------------------------------------------------------------------

PLACEHOLDER = struct.pack(">qiq", 0, PLACEHOLDER_SIZE, 0)


def test_the_end_is_the_last_byte_that_is_not_zero(tmp_path: Path) -> None:
    assert written_queue(tmp_path / "a", [packed_unit(n) for n in range(13)]).max_offset == 13
    # a message at physical offset 0 without tags: only its size is not zero
    assert written_queue(tmp_path / "b", [packed_unit(0, 100, 0)]).max_offset == 1
    assert written_queue(tmp_path / "c", [EMPTY, EMPTY, b"\1" + bytes(19)]).max_offset == 3
    assert written_queue(tmp_path / "d", [EMPTY, bytes(19) + b"\1"]).max_offset == 2


def test_files_of_zeros_at_the_end_hold_no_unit(tmp_path: Path) -> None:
    queue = written_queue(tmp_path, [packed_unit(n) for n in range(7)] + [EMPTY] * 30)
    assert len(queue.files.files) == 4
    assert queue.max_offset == 7  # RocketMQ would see a phantom unit in the last file


def test_queue_of_zeros(tmp_path: Path) -> None:
    queue = written_queue(tmp_path, [EMPTY] * 10, first=30)
    assert (queue.first_slot, queue.max_offset, queue.min_offset(0)) == (30, 30, 30)
    assert list(queue.units(0)) == []


def test_queue_without_files(tmp_path: Path) -> None:
    queue = queue_at(tmp_path / "none")
    assert (queue.first_slot, queue.max_offset, queue.min_offset(0), queue.unit(0)) == (0, 0, 0, None)
    assert list(queue.units(0)) == []


@pytest.mark.parametrize("minimum", [0, 1, 100, 450, 500, 600, 601, 1150, 1200, 1500, 1501, 9999])
def test_minimum_with_holes_and_placeholders(tmp_path: Path, minimum: int) -> None:
    """However the queue is torn, the minimum is the first unit whose message is in the log, or nonsense before it:
    that may have been one as well."""
    whole = [packed_unit(slot * 100) for slot in range(16)]
    torn = {
        "whole": {},
        "placeholders first": dict.fromkeys(range(5), PLACEHOLDER),
        "hole in the middle": dict.fromkeys(range(6, 11), EMPTY),
        "holes": dict.fromkeys([0, 1, 4, 7, 8, 9, 12, 14], EMPTY),
        "all but the last": dict.fromkeys(range(15), EMPTY),
        "wild units": {5: packed_unit(-5), 8: packed_unit(10**9, -1), 12: packed_unit(5, PLACEHOLDER_SIZE)},
    }
    for what, changes in torn.items():
        units = [changes.get(slot, packed) for slot, packed in enumerate(whole)]
        left = [slot for slot in range(16) if slot not in changes and slot * 100 >= minimum]
        while what == "wild units" and left and left[0] - 1 in changes:
            left.insert(0, left[0] - 1)
        queue = written_queue(tmp_path / what, units)
        assert queue.min_offset(minimum) == (left[0] if left else 16), what
        assert queue.min_offset(minimum) == (left[0] if left else 16), what


def test_lost_file_in_the_middle(tmp_path: Path) -> None:
    written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(35)])
    (tmp_path / f"{10 * 20:020d}").unlink()
    queue = queue_at(tmp_path)
    assert [unit.queue_offset for unit in queue.units(0)] == [*range(10), *range(20, 35)]
    assert [unit.queue_offset for unit in queue.units(8, 22)] == [8, 9, 20, 21]
    assert queue.unit(9) == unit_of(9)
    assert queue.unit(10) is None
    assert (queue.min_offset(0), queue.min_offset(950), queue.min_offset(1500), queue.max_offset) == (0, 20, 20, 35)
    assert [problem.kind for problem in queue.files.problems] == ["gap"]


def test_file_cut_in_the_middle_of_a_unit(tmp_path: Path) -> None:
    written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(10)])
    file = tmp_path / ("0" * 20)
    file.write_bytes(file.read_bytes()[:110])
    queue = queue_at(tmp_path)
    assert [unit.queue_offset for unit in queue.units(0)] == [0, 1, 2, 3, 4]
    assert queue.unit(5) is None
    assert queue.min_offset(0) == 0


def test_a_file_that_is_removed_while_the_queue_is_read(tmp_path: Path) -> None:
    """Its slots are left out as those of any missing file; where the queue ends is found without it."""
    written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(25)])
    queue = queue_at(tmp_path)
    files = sorted(tmp_path.iterdir())
    files[0].unlink()
    assert [unit.queue_offset for unit in queue.units(0)] == list(range(10, 25))
    other = queue_at(tmp_path)
    files[2].unlink()
    assert other.max_offset == 20


def test_a_file_that_is_cut_short_while_the_queue_is_read(tmp_path: Path) -> None:
    written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(25)])
    queue = queue_at(tmp_path)
    assert queue.max_offset == 25
    first = min(tmp_path.iterdir())
    first.write_bytes(first.read_bytes()[:70])
    assert [unit.queue_offset for unit in queue.units(0)] == [0, 1, 2, *range(10, 25)]


def test_a_run_of_units_is_of_one_file_and_ends_where_these_do(tmp_path: Path) -> None:
    packed = [packed_unit(slot * 100) for slot in range(35)]
    queue = written_queue(tmp_path, packed)
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


def golden_queues() -> list[tuple[str, ConsumeQueue]]:
    return [
        (name, queue)
        for name in ("clean", "features", "lmq", "cqext")
        for queue in reader(name).files.queues.all()
        if isinstance(queue, ConsumeQueue) and queue.max_offset
    ]
