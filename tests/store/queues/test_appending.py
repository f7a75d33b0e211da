"""Appending to queues of 20-byte units: files, runs, gaps, and what is never overwritten."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE
from tests.store.queues.test_consumequeue import (
    EMPTY,
    FILE_SIZE,
    PER_FILE,
    golden_queues,
    packed_unit,
    queue_at,
    unit_of,
    written_queue,
)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name.lstrip("0") or "0": path.read_bytes() for path in sorted(folder.iterdir())}


def test_appending_rolls_to_the_next_file(tmp_path: Path) -> None:
    folder = tmp_path / "T" / "0"
    queue = queue_at(folder)
    for slot in range(23):
        queue.append(unit_of(slot))
        assert queue.max_offset == slot + 1
        assert queue.unit(slot) == unit_of(slot)
    queue.close()
    files = _bytes(folder)
    assert [*files] == ["0", "200", "400"]
    data = b"".join(files.values())
    assert data == b"".join(packed_unit(slot * 100) for slot in range(23)) + EMPTY * 7
    assert queue_at(folder).max_offset == 23


def test_a_file_that_is_full_is_flushed_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name it is flushed only if somebody says so; its descriptor would stay open as long as the process."""
    flushed: list[str] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync":
            flushed.append(path)

    queue = queue_at(tmp_path / "q")
    monkeypatch.setattr(io, "observer", look)
    for slot in range(PER_FILE):
        queue.append(unit_of(slot))
    first = str(tmp_path / "q" / ("0" * 20))
    assert first not in flushed
    for end in (PER_FILE, PER_FILE + 1):
        queue.append(unit_of(end))
        assert flushed.count(first) == 1
        open_files = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
        assert first not in open_files
        assert open_files.count(str(tmp_path / "q" / f"{FILE_SIZE:020d}")) == 1
    queue.release()
    assert not [path for path in flushed if path.endswith(str(FILE_SIZE))]
    queue.append(unit_of(PER_FILE + 2))
    queue.close()
    assert flushed[-1] == str(tmp_path / "q" / f"{FILE_SIZE:020d}")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(1, 35)), max_size=6))
def test_runs_leave_what_single_units_leave(runs: list[tuple[int, int]]) -> None:
    """Runs of this many units behind gaps of that many slots."""
    with tempfile.TemporaryDirectory() as folder:
        single, queue = queue_at(Path(folder, "single")), queue_at(Path(folder, "runs"))
        end = 0
        for gap, length in runs:
            units = [unit_of(slot) for slot in range(end + gap, end + gap + length)]
            for unit in units:
                single.append(unit)
            queue.append_run(end + gap, b"".join(packed_unit(unit.physical_offset) for unit in units))
            end += gap + length
            assert queue.max_offset == single.max_offset == end
        single.close()
        queue.close()
        assert not runs or _bytes(Path(folder, "runs")) == _bytes(Path(folder, "single"))


def test_appending_to_a_queue_that_has_units(tmp_path: Path) -> None:
    queue = written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(13)])
    queue.append(unit_of(13))
    queue.close()
    assert list(queue_at(tmp_path).units(0)) == [unit_of(slot) for slot in range(14)]


@pytest.mark.parametrize(
    ("first", "files"), [(3, ["0"]), (10, ["200"]), (19, ["200"]), (27, ["400"]), (100_000, ["2000000"])]
)
def test_a_queue_that_begins_later(tmp_path: Path, first: int, files: list[str]) -> None:
    """ConsumeQueue#fillPreBlank: placeholders from the start of the file to the first unit."""
    folder = tmp_path / "new"
    queue = queue_at(folder)
    assert queue.min_offset(0) == 0
    queue.append(unit_of(first, 5000))
    queue.close()
    assert [*_bytes(folder)] == files
    for seen in (queue, queue_at(folder)):
        begin = first - first % PER_FILE
        assert [unit.is_placeholder for unit in seen.units(0)] == [True] * (first - begin) + [False]
        assert (seen.first_slot, seen.max_offset, seen.min_offset(0)) == (begin, first + 1, first)
        assert seen.unit(first) == unit_of(first, 5000)


def test_a_gap_is_filled_with_placeholders(tmp_path: Path) -> None:
    queue = written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(8)])
    queue.append(unit_of(24))
    queue.close()
    found = list(queue_at(tmp_path).units(0))
    assert [unit.queue_offset for unit in found] == list(range(25))
    assert [unit.is_placeholder for unit in found] == [False] * 8 + [True] * 16 + [False]


def test_minimum_follows_a_queue_that_goes_on_behind_a_gap(tmp_path: Path) -> None:
    queue = written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(8)])
    assert queue.min_offset(100_000) == 8  # nothing of it is left in the log
    queue.append(unit_of(24, 200_000))
    assert queue.min_offset(100_000) == 24
    queue.close()


def test_units_are_never_overwritten(tmp_path: Path) -> None:
    queue = written_queue(tmp_path, [packed_unit(slot * 100) for slot in range(8)])
    before = _bytes(tmp_path)
    for slot in (0, 7):
        with pytest.raises(WriteFailedError, match="does not follow") as failed:
            queue.append(unit_of(slot, 9999))
        assert failed.value.file == str(tmp_path)
    queue.close()
    assert _bytes(tmp_path) == before


def test_a_new_queue_without_any_size_has_rocketmqs(tmp_path: Path) -> None:
    queue = queue_at(tmp_path / "new", None)
    queue.append(unit_of(0))
    queue.close()
    assert (tmp_path / "new" / ("0" * 20)).stat().st_size == DEFAULT_FILE_SIZE == 6_000_000


def test_appended_units_are_those_of_rocketmq(tmp_path: Path) -> None:
    """Every queue of a golden written anew, unit by unit, is the same byte for byte."""
    for name, queue in itertools.islice(golden_queues(), 0, None, 7):
        copy = queue_at(tmp_path / name / queue.topic / str(queue.queue_id), 2000)
        for unit in queue.units(0):
            copy.append(unit)
        copy.close()
        original = {path.name.lstrip("0") or "0": path.read_bytes() for path in sorted(queue.directory.iterdir())}
        assert _bytes(copy.directory) == original
