"""A queue of files: how it loads whole and broken folders, where offsets lie, and files that come and go."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.errors import RemovedError, UnreadableError
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import Allocator, MappedFileQueue
from rmqctl.store.files.reading import Descriptors
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import reader
from tests.store.journal.failing import failing

SIZE = 100


def _write(folder: Path, *starts: int, size: int = SIZE) -> None:
    folder.mkdir(exist_ok=True)
    for start in starts:
        (folder / f"{start:020d}").write_bytes(bytes([start // SIZE % 256]) * size)


def _load(*folders: Path, file_size: int | None = None) -> MappedFileQueue:
    queue = MappedFileQueue(folders, file_size, Descriptors())
    queue.load()
    return queue


def _kinds(queue: MappedFileQueue) -> list[tuple[str, str]]:
    return [(problem.kind, problem.path.name.lstrip("0") or "0") for problem in queue.problems]


@pytest.mark.parametrize("name", ["clean", "v4-clean", "first-gone", "multipath", "gap"])
def test_offsets_of_goldens(name: str) -> None:
    log, summary = reader(name).files.log, truth(name).summary
    assert log.file_size == 262144
    assert log.min_offset == summary["minPhy"]
    # as it lies there it is readable up to the end of its last file
    assert log.max_offset - log.file_size < summary["maxPhy"] <= log.max_offset


# what a broker of one version or the other refuses or trips over
GOLDEN_PROBLEMS = {
    "short-last": [("size", "2097152")],
    "short-middle": [("size", "524288")],
    "empty-last": [("empty", "2359296")],
    "gap": [("gap", "1310720")],
    "stray-file": [("stray", "notes.txt")],
    "clean": [],
    "crash": [],
    "log-gone": [],
}


@pytest.mark.parametrize("name", GOLDEN_PROBLEMS)
def test_problems_of_goldens(name: str) -> None:
    log = reader(name).files.log
    assert _kinds(log) == GOLDEN_PROBLEMS[name]
    assert all(problem.detail for problem in log.problems)


def test_nothing_there(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "no such folder"):
        queue = _load(folder)
        assert (queue.files, queue.problems, queue.file_size) == ([], [], 0)
        assert (queue.min_offset, queue.max_offset) == (-1, 0)
        assert queue.find(0) is None
        assert queue.read(0, 10) == b""
    assert not (tmp_path / "no such folder").exists()


def test_size_is_that_of_most_files(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100, 200)
    _write(tmp_path, 300, size=30)
    queue = _load(tmp_path)
    assert queue.file_size == SIZE
    assert _kinds(queue) == [("size", "300")]
    assert _load(tmp_path, file_size=30).file_size == 30


def test_of_two_files_the_larger_is_whole(tmp_path: Path) -> None:
    _write(tmp_path, 0)
    _write(tmp_path, 100, size=70)
    assert _load(tmp_path).file_size == SIZE


def test_gap_and_overlap(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100, 300, 350)
    assert _kinds(_load(tmp_path)) == [("gap", "300"), ("overlap", "350")]


def test_strange_things(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ("0" * 19 + "x")).write_text("x")
    (tmp_path / ("0" * 17 + "200")).mkdir()  # RocketMQ passes over directories
    (tmp_path / ("0" * 17 + "300")).symlink_to("nowhere")
    os.mkfifo(tmp_path / ("0" * 17 + "400"))
    (tmp_path / ("0" * 17 + "500")).symlink_to("/dev/zero")
    before = tree_state(tmp_path)
    queue = _load(tmp_path)
    assert sorted(_kinds(queue)) == [
        ("stray", "400"), ("stray", "500"), ("stray", "notes.txt"), ("stray", "x"), ("unreadable", "300"),
    ]  # fmt: skip
    assert [file.start_offset for file in queue.files] == [0, 100]
    assert tree_state(tmp_path) == before


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "commitlog").write_text("x")
    with pytest.raises(UnreadableError, match="cannot be listed") as error:
        _load(tmp_path / "commitlog")
    assert error.value.file == str(tmp_path / "commitlog")


def test_finding_and_reading(tmp_path: Path) -> None:
    _write(tmp_path, 100, 200, 400)
    queue = _load(tmp_path)
    found = {offset: queue.find(offset) for offset in (-1, 0, 99, 100, 199, 200, 299, 300, 399, 400, 499, 500, 10**6)}
    starts = {offset: file.start_offset if file else None for offset, file in found.items()}
    assert starts == {
        -1: None, 0: None, 99: None, 100: 100, 199: 100, 200: 200, 299: 200, 300: None, 399: None, 400: 400, 499: 400,
        500: None, 10**6: None,
    }  # fmt: skip
    assert (queue.min_offset, queue.max_offset) == (100, 500)
    assert queue.read(195, 3) == b"\1\1\1"
    assert queue.read(195, 100) == b"\1" * 5  # all of one file
    assert queue.read(300, 5) == b""


def test_directories_take_turns(tmp_path: Path) -> None:
    """MultiPathMappedFileQueue: the file of number n goes to directory n modulo their count, by name."""
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    queue = _load(b, a, c, file_size=SIZE)
    assert [queue.path_of(number * SIZE).parent.name for number in range(5)] == ["a", "b", "c", "a", "b"]
    golden = reader("multipath").files.log
    assert [golden.path_of(file.start_offset) for file in golden.files] == [file.path for file in golden.files]


def test_files_of_several_directories_are_one_queue(tmp_path: Path) -> None:
    _write(tmp_path / "a", 0, 200)
    _write(tmp_path / "b", 100, 300)
    queue = _load(tmp_path / "a", tmp_path / "b")
    assert [file.start_offset for file in queue.files] == [0, 100, 200, 300]
    assert queue.problems == []


def test_new_files(tmp_path: Path) -> None:
    _write(tmp_path / "log", 0)
    queue = _load(tmp_path / "log")
    file = queue.create_file(100)
    assert (file.path.stat().st_size, file.wrote_position) == (SIZE, 0)
    assert (queue.max_offset, queue.find(100)) == (100, file)
    assert queue.read(100, 10) == b""  # nothing written yet
    file.reserve(3)
    file.append(b"abc", 5)
    assert (queue.read(100, 10), queue.max_offset) == (b"abc", 103)
    queue.close()
    assert _load(tmp_path / "log").read(100, 4) == b"abc\0"


def test_files_that_go(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100, 200)
    queue = _load(tmp_path)
    first = queue.files[0]
    along = queue.files
    assert first.destroy(0)
    assert (queue.min_offset, first.path.exists()) == (100, False)
    queue.forget({first.path})
    assert [file.start_offset for file in queue.files] == [100, 200]
    assert len(along) == 3  # who reads along the old list is not disturbed
    # nothing is opened again once nobody holds it, also before it is removed
    second = along[1]
    assert second.reference.shutdown(0)
    with pytest.raises(RemovedError):
        second.read(0, 5)


def test_a_single_read_keeps_its_file_and_does_not_begin_where_that_is_on_its_way_out(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100)
    queue = _load(tmp_path)
    first, second = queue.files
    counts = []
    read = first.descriptors.read

    def counting(path: Path, position: int, length: int) -> bytes:
        counts.append(second.reference.count)
        return read(path, position, length)

    first.descriptors.read = counting  # type: ignore[method-assign]
    assert second.read_once(98, 5) == b"\1\1"
    assert (counts, second.reference.count) == ([2], 1)
    assert first.reference.hold()
    assert not first.destroy(1000)
    with pytest.raises(RemovedError):
        first.read_once(0, 5)
    assert first.read(0, 2) == b"\0\0"  # by whoever holds it
    second.path.unlink()
    second.descriptors.forget(second.path)
    with pytest.raises(RemovedError):
        second.read_once(0, 5)
    assert second.reference.count == 1


def test_truncation_sets_positions(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100)
    queue = _load(tmp_path)
    queue.truncate(130)
    assert (queue.max_offset, queue.read(120, 50)) == (130, b"\1" * 10)
    assert queue.read(90, 50) == b"\0" * 10
    # where a file begins nothing of it is left
    queue.truncate(100)
    assert (queue.max_offset, queue.read(100, 50)) == (100, b"")


def test_loading_changes_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("empty-last")
    before = tree_state(store)
    queue = _load(store / "commitlog")
    queue.read(0, 1000)
    queue.close()
    assert tree_state(store) == before


def test_names_beyond_the_largest_offset_are_strays(tmp_path: Path) -> None:
    """20 digits can say more than 63 bits hold, and a file may end behind them."""
    largest = (1 << 63) - 1
    for name in ("9" * 20, f"{largest + 1:020d}", f"{largest:020d}"):
        (tmp_path / name).write_bytes(bytes(SIZE))
    (tmp_path / f"{largest - SIZE:020d}").write_bytes(bytes(SIZE))
    queue = _load(tmp_path)
    assert [file.start_offset for file in queue.files] == [largest - SIZE]
    assert [problem.kind for problem in queue.problems] == ["stray"] * 3


def test_a_file_that_is_removed_while_the_directory_is_listed(tmp_path: Path) -> None:
    """Others may be, too: it is listed again, until nothing goes; and a file that goes on vanishing is not there."""
    _write(tmp_path, 0, 100, 200)
    first = tmp_path / f"{0:020d}"
    with failing(first, "look", 1, error=errno.ENOENT) as once:
        assert [file.start_offset for file in _load(tmp_path).files] == [0, 100, 200]
    assert once.is_reached
    with failing(first, "look", 1, error=errno.ENOENT, lasting=True) as again:
        assert [file.start_offset for file in _load(tmp_path).files] == [100, 200]
    assert again.is_reached


def test_a_file_that_goes_from_the_middle_is_no_work_of_a_cleaner(tmp_path: Path) -> None:
    _write(tmp_path, 0, 100, 200)
    queue = _load(tmp_path)
    (tmp_path / f"{100:020d}").unlink()
    with pytest.raises(RemovedError, match="was removed while the store was read") as removed:
        queue.read(150, 10)
    assert removed.value.file == str(tmp_path / f"{100:020d}")
    # the first ones are what a cleaner takes
    (tmp_path / f"{0:020d}").unlink()
    assert queue.read(50, 10) == b""
    assert queue.read(250, 10) == b"\2" * 10


def _starts(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir())


def _made(allocator: Allocator, folder: Path, starts: list[int]) -> bool:
    """Wait for these files."""
    for _ in range(1000):
        if _starts(folder) == starts and not allocator._wanted:
            return True
        time.sleep(0.01)
    return False


def test_the_next_file_and_the_next_but_one_are_made_ahead_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, 0)
    allocator = Allocator(_load(tmp_path), True, lambda: None)
    made: list[int] = []
    create = allocator._create

    def noted(start: int) -> MappedFile:
        made.append(start)
        return create(start)

    monkeypatch.setattr(allocator, "_create", noted)
    allocator.ask(100)
    assert _made(allocator, tmp_path, [0, 100, 200])
    assert allocator.take(100).start_offset == 100
    allocator.ask(200)
    assert _made(allocator, tmp_path, [0, 100, 200, 300])
    assert made == [100, 200, 300]
    # another one: those that were made are in the way of it
    assert allocator.take(400).start_offset == 400
    assert _starts(tmp_path) == [0, 100, 400]
    allocator.ask(500)
    allocator.close()
    allocator.ask(700)
    assert _starts(tmp_path) == [0, 100, 400]


def test_a_file_that_is_given_back_takes_those_after_it_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a kill in between would leave a log with a gap."""
    _write(tmp_path, 0)
    allocator = Allocator(_load(tmp_path), True, lambda: None)
    allocator.ask(100)
    file = allocator.take(100)
    assert _made(allocator, tmp_path, [0, 100, 200])
    removed: list[str] = []
    monkeypatch.setattr(io, "observer", lambda done, path, *_: removed.append(f"{done} {Path(path).name.lstrip('0')}"))
    allocator.give_back(file)
    assert [done for done in removed if not done.startswith("fsync")] == ["remove 200", "remove 100"]
    assert _starts(tmp_path) == [0]
    allocator.close()


def test_the_name_of_the_file_before_is_on_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, 0)
    allocator = Allocator(_load(tmp_path), True, lambda: None)
    done: list[str] = []
    monkeypatch.setattr(io, "observer", lambda what, path, *_: done.append(f"{what} {Path(path).name.lstrip('0')}"))
    allocator.ask(100)
    assert _made(allocator, tmp_path, [0, 100, 200])
    names = [one for one in done if "00" in one or one == f"fsync {tmp_path.name.lstrip('0')}"]
    first, second = (next(at for at, one in enumerate(names) if one.endswith(start)) for start in (" 100", " 200"))
    assert f"fsync {tmp_path.name.lstrip('0')}" in names[first + 1 : second]
    allocator.close()


def test_who_needs_the_file_that_is_just_being_made_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, 0)
    allocator = Allocator(_load(tmp_path), True, lambda: None)
    create, wait_for = allocator._create, allocator._condition.wait_for
    taker, is_waiting = threading.current_thread(), threading.Event()
    makers: list[str] = []

    def creating(start_offset: int) -> MappedFile:
        makers.append(threading.current_thread().name)
        assert is_waiting.wait(600)
        return create(start_offset)

    def waiting(predicate: Callable[[], bool]) -> bool:
        if threading.current_thread() is taker:
            is_waiting.set()
        return wait_for(predicate)

    monkeypatch.setattr(allocator, "_create", creating)
    monkeypatch.setattr(allocator._condition, "wait_for", waiting)
    allocator.ask(100)
    assert allocator.take(100).start_offset == 100
    assert set(makers) == {"rmqctl-allocate"}
    allocator.close()
