"""Index files: written byte for byte as RocketMQ writes them, read through their chains, sound or broken."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile
from tests.goldens import truth
from tests.opened import reader
from tests.quick import examples

INDEXED = ("clean", "v4-clean", "features", "v4-features", "propcrc", "lmq", "longtopic", "broker-real", "crash-now")
SMALL = Geometry(10, 20)


def java_keys(name: str) -> list[tuple[int, int, int]]:
    """(key hash, physical offset, store time) in the order RocketMQ put them, a key repeated in a message included."""
    found = []
    for row in truth(name).messages:
        if row["sysFlag"] & 0xC == 0xC:  # rolled back
            continue
        properties = row["properties"]
        keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        keys += [key for key in properties.get("KEYS", "").split(" ") if key]
        found += [(key_hash(row["topic"], key), row["phyOffset"], row["storeTimestamp"]) for key in keys]
    return found


def new_file(path: Path, geometry: Geometry = SMALL) -> IndexFile:
    io.create_file(path, geometry.file_size)
    return IndexFile(path, geometry, Descriptors())


@pytest.mark.parametrize("name", INDEXED)
def test_put_writes_what_rocketmq_wrote(name: str, tmp_path: Path) -> None:
    """All keys of a golden put anew give the bytes of its index files, header, slots and entries."""
    originals = reader(name).files.index.files
    keys = iter(java_keys(name))
    for original in originals:
        assert original.geometry == Geometry(500, 2000)
        made = new_file(tmp_path / original.path.name, original.geometry)
        for entry in zip(range(1, original.header.index_count), keys, strict=False):
            made.put(*entry[1])
        assert made.is_full == original.is_full
        made.close()
        assert made.path.read_bytes() == original.path.read_bytes()
    assert next(keys, None) is None


@pytest.mark.parametrize("name", INDEXED)
def test_every_key_is_found_through_its_chain(name: str) -> None:
    expected: dict[int, list[int]] = defaultdict(list)
    for hashed, offset, _ in java_keys(name):
        expected[hashed].append(offset)
    files = reader(name).files.index.files
    for hashed, offsets in expected.items():
        found = [
            entry.physical_offset
            for file in reversed(files)
            for entry in file.chain(hashed)
            if entry.key_hash == hashed
        ]
        assert found == offsets[::-1]  # newest first


@pytest.mark.parametrize("name", INDEXED)
def test_times_are_good_to_the_second(name: str) -> None:
    times = {(offset, time) for _, offset, time in java_keys(name)}
    stored = dict(times)
    for file in reader(name).files.index.files:
        for entry in file.entries():
            assert 0 <= stored[entry.physical_offset] - entry.timestamp < 1000


def test_entries_are_read_as_their_chains_say() -> None:
    for file in reader("clean").files.index.files:
        entries = list(file.entries())
        assert [entry.number for entry in entries] == list(range(1, file.header.index_count))
        for entry in entries[::53]:
            assert file.entry(entry.number) == entry
        newest = {entry.key_hash % 500: entry.number for entry in entries}
        assert [file.slot(hashed) for hashed in range(500)] == [newest.get(slot, 0) for slot in range(500)]
        assert file.header.hash_slot_count == len(newest)


KEYS = st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.integers(0, 5000)), max_size=19)


@settings(max_examples=examples(50), deadline=None)
@given(KEYS, st.integers(0, 1 << 41))
def test_chains_of_any_keys(tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[int, int]], begin: int) -> None:
    file = new_file(tmp_path_factory.mktemp("index") / "file")
    for number, (hashed, later) in enumerate(keys):
        file.put(hashed, number * 100, begin + later)
    file.close()
    again = IndexFile(file.path, SMALL, Descriptors())
    assert again.header == file.header
    assert again.is_full == (len(keys) == 19)
    for hashed in {hashed for hashed, _ in keys} | {0, 77}:
        expected = [number + 1 for number, (other, _) in enumerate(keys) if other % 10 == hashed % 10][::-1]
        assert [entry.number for entry in again.chain(hashed)] == expected
    assert [(entry.key_hash, entry.physical_offset) for entry in again.entries()] == [
        (hashed, number * 100) for number, (hashed, _) in enumerate(keys)
    ]


def test_time_differences_are_bounded(tmp_path: Path) -> None:
    """IndexFile#putKey: no time before the file's begin, none beyond what an integer holds, none without a begin."""
    file = new_file(tmp_path / "file")
    file.put(1, 0, 10_000)
    file.put(1, 1, 4000)
    file.put(1, 2, 12_999)
    file.put(1, 3, 10_000 + (1 << 50))
    assert [entry.timestamp for entry in file.entries()] == [10_000, 10_000, 12_000, 10_000 + 0x7FFFFFFF * 1000]
    without = new_file(tmp_path / "without")
    without.put(1, 0, 0)
    without.put(1, 0, 5000)
    assert [entry.timestamp for entry in without.entries()] == [0, 0]
    file.close()
    without.close()


# --- broken files -----------------------------------------------------------------------------------------------------


def _broken(tmp_path: Path, position: int, value: int) -> IndexFile:
    """A file of four entries, all of slot 1, with one integer changed."""
    file = new_file(tmp_path / "file")
    for number in range(4):
        file.put(1 + 10 * number, number * 100, 1000)
    file.close()
    data = bytearray(file.path.read_bytes())
    struct.pack_into(">i", data, position, value)
    file.path.write_bytes(data)
    return IndexFile(file.path, SMALL, Descriptors())


@pytest.mark.parametrize("previous", [3, 4, 5, 1000, 0x7FFFFFFF, -1, -(1 << 31)])
def test_a_chain_that_leads_nowhere_is_damage(tmp_path: Path, previous: int) -> None:
    file = _broken(tmp_path, SMALL.entry_position(3) + 16, previous)
    chain = file.chain(1)
    assert [next(chain).number, next(chain).number] == [4, 3]
    with pytest.raises(CorruptError, match=f"leads on to {previous}") as error:
        next(chain)
    assert error.value.file == str(file.path)
    assert "rebuild" in (error.value.hint or "")


def test_a_chain_that_skips_entries_is_followed(tmp_path: Path) -> None:
    assert [entry.number for entry in _broken(tmp_path, SMALL.entry_position(4) + 16, 1).chain(1)] == [4, 1]


def test_a_short_chain_is_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _broken(tmp_path, SMALL.entry_position(4) + 16, 3)
    reads: list[int] = []
    read = Descriptors.read

    def counting(self: Descriptors, path: Path, position: int, length: int) -> bytes:
        reads.append(position)
        return read(self, path, position, length)

    monkeypatch.setattr(Descriptors, "read", counting)
    assert [entry.number for entry in file.chain(1)] == [4, 3, 2, 1]
    assert reads == [SMALL.slot_position(1), SMALL.entry_position(1)]


def test_a_bad_page_hides_its_own_entries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _broken(tmp_path, SMALL.entry_position(4) + 16, 3)
    read = Descriptors.read

    def failing(self: Descriptors, path: Path, position: int, length: int) -> bytes:
        if position <= SMALL.entry_position(1) + 3 < position + length:
            raise UnreadableError("cannot be read: Input/output error", file=path)
        return read(self, path, position, length)

    monkeypatch.setattr(Descriptors, "read", failing)
    chain = file.chain(1)
    assert [next(chain).number for _ in range(3)] == [4, 3, 2]
    with pytest.raises(UnreadableError):
        next(chain)


def test_a_slot_that_is_ahead_of_the_header_leads_to_its_entry(tmp_path: Path) -> None:
    """As between two writes of IndexFile#putKey: the header is written last."""
    file = _broken(tmp_path, SMALL.slot_position(1), 5)
    assert (file.raw_slot(1), file.slot(1)) == (5, 0)
    assert [entry.number for entry in file.chain(1)] == [5]


@pytest.mark.parametrize("slot", [6, 1000, 0x7F7F7F7F, -1])
def test_a_wild_slot_holds_no_entry(tmp_path: Path, slot: int) -> None:
    file = _broken(tmp_path, SMALL.slot_position(1), slot)
    assert (file.raw_slot(1), file.slot(1)) == (slot, 0)
    assert list(file.chain(1)) == []


def test_garbage_in_the_slots_of_a_golden() -> None:
    file = reader("index-garbage").files.index.files[2]
    assert {file.raw_slot(hashed) for hashed in range(500)} == {0x7F7F7F7F}
    assert all(file.slot(hashed) == 0 for hashed in range(500))
    assert len(list(file.entries())) == file.header.index_count - 1


@pytest.mark.parametrize("count", [0, -5, 1])
def test_a_count_below_one_is_an_empty_file(tmp_path: Path, count: int) -> None:
    file = _broken(tmp_path, 36, count)
    assert file.header.index_count == 1
    assert list(file.entries()) == []
    assert list(file.chain(1)) == []


def test_a_count_beyond_the_file_is_damage(tmp_path: Path) -> None:
    file = _broken(tmp_path, 36, 1_000_000)
    with pytest.raises(CorruptError, match="beyond the end"):
        list(file.entries())
    with pytest.raises(CorruptError, match="entry 999 "):
        file.entry(999)
    assert file.is_full


@pytest.mark.parametrize("size", [0, 1, 39])
def test_a_file_shorter_than_its_header(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    with pytest.raises(CorruptError, match="less than its header"):
        IndexFile(tmp_path / "file", SMALL, Descriptors())


def test_putting_over_a_wild_slot_does_not_chain_to_it(tmp_path: Path) -> None:
    """IndexFile#putKey takes a slot that is no entry's number as empty."""
    file = _broken(tmp_path, SMALL.slot_position(1), 0x7F7F7F7F)
    file.put(1, 900, 2000)
    assert [entry.physical_offset for entry in file.chain(1)] == [900]
    file.close()


def test_between_two_writes_of_a_put_every_counted_key_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill there costs no key, and a reader who comes there follows no number to bytes that are not written yet."""
    file = new_file(tmp_path / "1")
    seen: list[tuple[list[int], list[int]]] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation == "write":
            meanwhile = IndexFile(Path(path), SMALL, Descriptors())
            seen.append(
                (
                    [entry.physical_offset for entry in meanwhile.entries()],
                    [entry.physical_offset for entry in meanwhile.chain(7)],
                )
            )
            meanwhile.close()

    with monkeypatch.context() as patch:
        patch.setattr(io, "observer", look)
        for offset in (100, 200, 300):
            file.put(7, offset, 1_000_000 + offset)
    file.close()
    assert len(seen) == 9
    for counted, found in seen:
        assert set(counted) <= set(found) <= {100, 200, 300}
        assert found == sorted(found, reverse=True)
