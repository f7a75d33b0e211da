"""Index entries in batches make the files that single entries make, whatever stands in the slots."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import WriteFailedError
from rmqctl.formats.layouts import INDEX_SLOT
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_service import IndexService
from rmqctl.store.write import appenders as index_batches
from rmqctl.store.write.appenders import IndexBatches, NewEntries
from tests.quick import examples
from tests.store.write.writing import files_below, small

# slots and entries of a file
CONFIG = small(max_hash_slot_num=7, max_index_num=20)
Entry = tuple[int, int, int]

ENTRIES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 20), st.integers(0, (1 << 31) - 1)),
        st.integers(0, 1 << 40),
        st.one_of(st.integers(1_700_000_000_000, 1_700_000_009_999), st.integers(0, 1 << 45)),
    ),
    max_size=60,
)

SLOTS = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 20))


@pytest.fixture(autouse=True, scope="module")
def _even_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_batches, "_FEW", 1)
        yield


def service_at(folder: Path) -> IndexService:
    """An index of small files, as it lies on disk."""
    folder.mkdir(exist_ok=True)
    service = IndexService(folder, CONFIG, Descriptors())
    service.load()
    return service


def put_single(service: IndexService, entries: list[Entry]) -> int:
    """The plain twin; the time of the last entry that filled a file."""
    full = 0
    for hashed, offset, timestamp in entries:
        file = service.open_file(timestamp)
        file.put(hashed, offset, timestamp)
        full = timestamp if file.is_full else full
    return full


def columns(entries: list[Entry]) -> NewEntries:
    """The same as columns."""
    hashes, offsets, timestamps = zip(*entries, strict=True) if entries else ((), (), ())
    return NewEntries(np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64))


def put_batches(service: IndexService, entries: list[Entry], cuts: list[int]) -> int:
    """Put `entries` in pieces of these lengths."""
    batches, full, begin = IndexBatches(service), 0, 0
    for length in [*cuts, len(entries)]:
        full = batches.put(columns(entries[begin : begin + length])) or full
        begin += length
    batches.close()
    return full


def damage(service: IndexService, values: list[int]) -> None:
    """Write numbers over the slots of the last file: entries, and what never will be one.

    The number of an entry yet to come is taken for an entry once that is there by single puts, and never by batches.
    """
    if service.files:
        file = service.files[-1]
        count, most = file.header.index_count, file.geometry.entries
        data = b"".join(INDEX_SLOT.struct.pack(0 if count <= value < most else value) for value in values)
        io.write_range(file.path, file.geometry.slot_position(0), data)


@settings(max_examples=examples(80), deadline=None)
@given(
    ENTRIES,
    ENTRIES,
    st.lists(st.integers(0, 25), max_size=4),
    st.one_of(st.none(), st.lists(SLOTS, min_size=7, max_size=7)),
)
def test_batches_and_single_entries_agree(
    before: list[Entry], entries: list[Entry], cuts: list[int], slots: list[int] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name in ("single", "batches"):
            service = service_at(Path(folder, name))
            put_single(service, before)
            if slots is not None:
                damage(service, slots)
            full = put_single(service, entries) if name == "single" else put_batches(service, entries, cuts)
            headers = [file.header for file in service.files]
            service.close()
            found.append((full, headers, files_below(Path(folder, name))))
        assert found[0] == found[1]


def test_few_entries_for_a_new_file_reserve_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_batches, "_FEW", 5)
    seen: list[str] = []
    monkeypatch.setattr(io, "observer", lambda operation, path, _offset, _length: seen.append(operation))
    batches = IndexBatches(service_at(tmp_path / "index"))
    batches.put(columns([(1, 2, 3)] * 4))
    assert "map" not in seen
    batches.put(columns([(1, 2, 3)] * 5))
    assert {"map", "reserve"} <= set(seen)
    seen.clear()
    batches.put(columns([(1, 2, 3)]))
    assert seen == ["write", "write", "write"]
    batches.close()


@pytest.mark.parametrize("scarce", [True, False])
def test_where_slots_cannot_be_reserved_entries_are_put_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scarce: bool
) -> None:
    def full(operation: str, _path: str, _offset: int, _length: int) -> None:
        if operation == "reserve":
            raise OSError(errno.ENOSPC, "No space left on device")

    if scarce:  # one byte less than has to stay free
        needed = 7 * INDEX_SLOT.size + index_batches._KEPT_FREE
        monkeypatch.setattr(io, "free_bytes", lambda _path: needed - 1)
        monkeypatch.setattr(index_batches, "_OpenSlots", None)
    else:
        monkeypatch.setattr(io, "observer", full)
    service = service_at(tmp_path / "index")
    batches = IndexBatches(service)
    batches.put(columns([(number, number, 9000 + number) for number in range(10)]))
    batches.close()
    assert [entry.number for entry in service.files[0].chain(9)] == [10, 3]


def test_a_write_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(operation: str, _path: str, offset: int, _length: int) -> None:
        if operation == "write" and offset > 0:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(io, "observer", broken)
    batches = IndexBatches(service_at(tmp_path / "index"))
    with pytest.raises(WriteFailedError, match="Input/output"):
        batches.put(columns([(1, 2, 3)] * 9))


def test_a_reader_meanwhile_finds_every_older_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has been written of a batch, chains lead to what was there before it."""
    service = service_at(tmp_path / "index")
    batches = IndexBatches(service)
    batches.put(columns([(3, 100, 9000), (10, 200, 9000)]))
    seen: list[list[int]] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "write":
            reader = service_at(tmp_path / "index")
            seen.append([entry.physical_offset for entry in reader.files[0].chain(3)])

    monkeypatch.setattr(io, "observer", look)
    batches.put(columns([(3, 300, 9000), (17, 400, 9000)]))
    monkeypatch.undo()
    batches.close()
    assert seen == [[200, 100]] * 3
    assert [entry.physical_offset for entry in service.files[0].chain(3)] == [400, 300, 200, 100]


def test_few_entries_again_and_again_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's slots are opened once more than a few were put to it, however few come at once."""
    monkeypatch.setattr(index_batches, "_FEW", 6)
    batches = IndexBatches(service_at(tmp_path / "index"))
    opened = []
    for number in range(13):
        batches.put(columns([(number, 1000 * number, 1_700_000_000_000)] * 2))
        opened.append(batches._open is not None)
    batches.close()
    # files of 19 entries: the third call, and the fourth for the next file, the first with one entry
    assert opened == [False] * 2 + [True] * 7 + [False] * 3 + [True]


def test_the_slots_of_a_full_file_are_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner that removes the file would free nothing of the disk as long as somebody has it mapped. And the file
    is on disk then: the checkpoint may tell its time."""
    synced: list[str] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "fsync":
            synced.append(path)

    monkeypatch.setattr(io, "observer", look)
    service = service_at(tmp_path / "index")
    batches = IndexBatches(service)
    batches.put(columns([(number, 1000 * number, 1_700_000_000_000) for number in range(18)]))
    assert batches._open is not None
    assert str(service.files[-1].path) not in synced
    batches.put(columns([(18, 18_000, 1_700_000_000_000)]))
    assert service.files[-1].is_full
    assert str(service.files[-1].path) in synced
    assert batches._open is None


def test_the_number_of_an_entry_yet_to_come_leads_nowhere(tmp_path: Path) -> None:
    """A slot that holds one is damaged: the new entry is the first of its chain."""
    service = service_at(tmp_path / "index")
    batches = IndexBatches(service)
    batches.put(columns([(3, 100, 9000)]))
    batches.close()
    file = service.files[-1]
    for value in (2, 3, -1):
        io.write_range(file.path, file.geometry.slot_position(5), INDEX_SLOT.struct.pack(value))
        number = file.header.index_count
        batches.put(columns([(5, 200, 9000)]))
        batches.close()
        assert [entry.number for entry in file.chain(5)] == ([number] if value >= number or value < 0 else [number, 2])


def test_what_is_written_to_slots_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = service_at(tmp_path / "index")
    batches = IndexBatches(service)
    batches.put(columns([(1, 100, 9000)]))
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(io, "observer", lambda _operation, _path, offset, length: seen.append((offset, length)))
    batches.put(columns([(0, 200, 9000), (6, 300, 9000)]))
    monkeypatch.undo()
    batches.close()
    assert (service.files[-1].geometry.slot_position(0), 2 * INDEX_SLOT.size) in seen


def test_nothing_stays_open_or_mapped_where_slots_cannot_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(operation: str, _path: str, _offset: int, _length: int) -> None:
        if operation == "reserve":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(io, "observer", full)
    service = service_at(tmp_path / "index")
    batches, counts = IndexBatches(service), []
    for number in range(5):
        batches.put(columns([(number, number, 9000), (number, number + 1, 9000)]))
        links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        counts.append(links.count(service.files[0].path))
    assert len(set(counts)) == 1
    assert str(service.files[0].path) not in Path("/proc/self/maps").read_text()
    assert service.files[0].header.index_count == 11
