"""Slots and entries of an index file found out from the file alone."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.formats.layouts import INDEX_ENTRY
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index import index_file as geometry_module
from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, Geometry, IndexFile, fits, infer_geometry
from tests.goldens import GOLDENS, truth
from tests.opened import reader
from tests.quick import examples, goldens_of

RATIOS = [Geometry(300, 700), Geometry(1000, 1000), Geometry(1, 50), Geometry(700, 30), Geometry(500, 2000),
          Geometry(100, 400), Geometry(97, 89)]  # fmt: skip


def _file(path: Path, geometry: Geometry, count: int, step: int = 137, first: int = 1000) -> Path:
    io.create_file(path, geometry.file_size)
    file = IndexFile(path, geometry, Descriptors())
    for number in range(count):
        file.put((number * 7_919_317) % (1 << 31), first + number * step, 1_700_000_000_000 + number * 400)
    file.close()
    return path


def _inferred(path: Path) -> Geometry | None:
    return infer_geometry(path, path.stat().st_size, Descriptors())


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if name != "index-garbage"))
def test_goldens(name: str) -> None:
    index = reader(name).files.index
    assert {file.geometry for file in index.files} <= {Geometry(500, 2000)}
    listed = [row["path"] for row in truth(name).summary["filesBefore"] if row["path"].startswith("index/")]
    assert len(index.files) == len(listed)
    assert index.problems == []


@pytest.mark.parametrize("geometry", RATIOS)
@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_ratios(tmp_path: Path, geometry: Geometry, share: float) -> None:
    count = max(1, int((geometry.entries - 1) * share))
    assert _inferred(_file(tmp_path / "file", geometry, count)) == geometry


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 400), st.integers(5, 400), st.data())
def test_any_geometry(tmp_path_factory: pytest.TempPathFactory, slots: int, entries: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, entries - 1))
    geometry = Geometry(slots, entries)
    path = _file(tmp_path_factory.mktemp("index") / "file", geometry, count)
    assert _inferred(path) == geometry


def test_keys_of_one_message_share_an_offset(tmp_path: Path) -> None:
    path = _file(tmp_path / "file", Geometry(300, 700), 50, step=0)
    assert _inferred(path) == Geometry(300, 700)


def test_the_default_is_tried_first(tmp_path: Path) -> None:
    default = Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES)
    assert default.file_size == 420_000_040  # as RocketMQ's own index files
    path = _file(tmp_path / "file", default, 3)
    assert _inferred(path) == default


def test_default_size_with_another_ratio(tmp_path: Path) -> None:
    """A file of just the default's length need not have its slots."""
    other = Geometry(DEFAULT_SLOTS - 5 * 1000, DEFAULT_ENTRIES + 1000)
    assert other.file_size == 420_000_040
    assert _inferred(_file(tmp_path / "file", other, 10)) == other


def test_an_empty_file_of_the_usual_ratio(tmp_path: Path) -> None:
    assert _inferred(_file(tmp_path / "file", Geometry(100, 400), 0)) == Geometry(100, 400)


def test_nothing_fits(tmp_path: Path) -> None:
    for number, data in enumerate((b"", b"x" * 39, bytes(40), b"\xff" * 1000, bytes(range(256)) * 20, b"\x7f" * 42040)):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert _inferred(path) is None, number


@pytest.mark.parametrize("damage", ["first entry", "last entry", "header's end", "header's count"])
def test_damaged_files_do_not_fit(tmp_path: Path, damage: str) -> None:
    geometry = Geometry(100, 400)
    path = _file(tmp_path / "file", geometry, 200)
    place = {
        "first entry": geometry.entry_position(1) + 4,
        "last entry": geometry.entry_position(200) + 4,
        "header's end": 24,
        "header's count": 36,
    }[damage]
    assert fits(path, geometry, Descriptors())
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.write_bytes(data)
    assert not fits(path, geometry, Descriptors())
    assert _inferred(path) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key_hash", -1),
        ("physical_offset", 1000 + 4 * 137 - 1),
        ("physical_offset", 1000 + 49 * 137 + 1),
        ("previous_entry", -1),
        ("previous_entry", 6),
    ],
)
def test_an_entry_that_cannot_be(tmp_path: Path, field: str, value: int) -> None:
    """Each alone: the sixth entry in a file of fifty."""
    geometry = Geometry(300, 700)
    path = _file(tmp_path / "file", geometry, 50)
    _, kind, offset, size = next(one for one in INDEX_ENTRY.fields if one[0] == field)
    data = bytearray(path.read_bytes())
    place = geometry.entry_position(6) + offset
    data[place : place + size] = struct.pack(f">{kind}", value)
    path.write_bytes(data)
    assert not fits(path, geometry, Descriptors())


def test_what_is_looked_for_may_stand_on_the_edge_of_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path / "file", Geometry(97, 89), 50)
    for window in range(8, 48):
        monkeypatch.setattr(geometry_module, "_WINDOW", window)
        assert _inferred(path) == Geometry(97, 89)


def test_repeated_offsets_all_over_the_file_end_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hostile bytes: the offset that is looked for stands everywhere."""
    path = tmp_path / "file"
    header = (0).to_bytes(16, "big") + (5).to_bytes(8, "big") + (9).to_bytes(8, "big") + (0).to_bytes(4, "big")
    path.write_bytes((header + (100).to_bytes(4, "big")).ljust(40, b"\0") + (9).to_bytes(8, "big") * 50_000)
    reads = 0
    real = Descriptors.read

    def counting(descriptors: Descriptors, file: Path, position: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        return real(descriptors, file, position, length)

    monkeypatch.setattr(Descriptors, "read", counting)
    assert _inferred(path) is None
    assert reads < 3 * 50_000


def test_a_message_with_many_keys_at_the_beginning_and_the_end_of_a_log(tmp_path: Path) -> None:
    """The offset of the last entry stands in those before it too, and zeros pass for an entry of a log that begins at
    0: only the slot of the last entry tells them apart."""
    geometry = Geometry(40, 200)
    io.create_file(tmp_path / "file", geometry.file_size)
    file = IndexFile(tmp_path / "file", geometry, Descriptors())
    for number in range(20):
        for key in range(3):
            file.put((number * 31 + key) * 7_919_317 % (1 << 31), number * 500, 1_700_000_000_000 + number * 400)
    file.close()
    assert _inferred(tmp_path / "file") == geometry
    with (tmp_path / "file").open("r+b") as damaged:
        damaged.seek(geometry.entry_position(60) + INDEX_ENTRY.offset("physical_offset"))
        damaged.write(b"\x08")
    # that of its neighbour, which has the same message, is no answer
    assert _inferred(tmp_path / "file") is None
