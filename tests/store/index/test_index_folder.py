"""The folder of index files: the sizes that are taken for new ones, their names, and what others change in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.index import index_service
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.index.index_service import index_file_name, index_file_name_after
from tests.store.index.offsets import CONFIG, filled_service, offsets_of, service_of


def test_a_file_of_another_size_is_not_read_with_the_geometry_of_those_beside_it(tmp_path: Path) -> None:
    """Nor with the configured one; each is what its own length and entries say."""
    filled_service(tmp_path, 5, StoreConfig(max_hash_slot_num=10, max_index_num=40))
    [path] = tmp_path.iterdir()
    data = path.read_bytes()
    path.unlink()
    filled_service(tmp_path, 45)
    (tmp_path / ("9" * 17)).write_bytes(data)
    for config in (CONFIG, StoreConfig()):
        service = service_of(tmp_path, config)
        assert [file.geometry for file in service.files] == [Geometry(10, 20)] * 3 + [Geometry(10, 40)]
        # new ones are like most
        assert service.geometry == Geometry(10, 20)


def test_whether_the_size_of_new_files_is_a_guess(tmp_path: Path) -> None:
    assert service_of(tmp_path, StoreConfig()).is_geometry_assumed
    assert not service_of(tmp_path).is_geometry_assumed
    filled_service(tmp_path, 5)
    assert not service_of(tmp_path, StoreConfig()).is_geometry_assumed


def test_a_name_is_later_than_the_one_before_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_service, "_TRIED_NAMES", 3)
    now = 1_700_000_000_500
    name = index_file_name(now)
    assert index_file_name_after(now, "") == name
    assert index_file_name_after(now, index_file_name(now - 1)) == name
    assert index_file_name_after(now, name) == index_file_name(now + 1)
    assert index_file_name_after(now, index_file_name(now + 1)) == index_file_name(now + 2)
    assert index_file_name_after(now, index_file_name(now + 2)) == index_file_name(now + 3)
    assert index_file_name_after(now, "0" * 16 + "7") == name
    assert index_file_name_after(now, "9" * 16 + "7") == "9" * 16 + "8"
    # times that are none
    assert index_file_name_after(-5, "") == index_file_name(0)
    assert index_file_name_after(1 << 60, "") == index_file_name(253_370_764_800_000)
    assert len(index_file_name_after(0, "")) == 17


def test_what_another_process_changed_is_taken_in(tmp_path: Path) -> None:
    reading, writing = filled_service(tmp_path, 25), service_of(tmp_path)
    known = list(reading.files)
    for number in range(25, 45):
        writing.put("T", "new", number * 100, 1_700_000_000_000 + number)
    writing.close()
    (tmp_path / "notes").write_text("x")
    reading.look_again()
    assert reading.files[:2] == known
    assert all(one is other for one, other in zip(reading.files, known, strict=False))
    assert list(offsets_of(reading, "T", "new")) == [number * 100 for number in range(44, 24, -1)]
    assert [path.name for path, _ in reading.problems] == ["notes"]
    first = reading.files[0]
    reading.forget([first.path])
    assert reading.files == [known[1], reading.files[-1]]
    first.path.unlink()
    reading.look_again()
    assert [file.path for file in reading.files] == [file.path for file in writing.files[1:]]


def test_a_new_file_is_on_disk_with_its_folder_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever flushes it later does not know that it is new."""
    told: list[tuple[str, str]] = []

    def look(operation: str, path: str, _offset: int, _length: int) -> None:
        if operation in ("fsync", "write", "create"):
            told.append((operation, str(Path(path).relative_to(tmp_path))))

    service = service_of(tmp_path / "a" / "index")
    monkeypatch.setattr(io, "observer", look)
    file = service.create_file(1_700_000_000_000)
    flushed = [path for operation, path in told if operation == "fsync"]
    assert flushed[-1] == "a/index"
    assert {".", "a"} <= set(flushed[:-1])
    assert file.path.name == index_file_name(1_700_000_000_000)
    assert file.path.stat().st_size == file.geometry.file_size == Geometry(10, 20).file_size
    told.clear()
    service.put("T", "k", 5, 1_700_000_000_000)
    assert "fsync" not in [operation for operation, _ in told]
    service.flush()
    assert ("fsync", f"a/index/{file.path.name}") in told


def test_a_file_that_goes_is_gone_and_one_that_is_closed_is_opened_anew(tmp_path: Path) -> None:
    """What is put into its place under its name meanwhile is what is read."""
    service = filled_service(tmp_path, 25)
    first, second = service.files
    other = first.path.read_bytes()
    assert first.entry(1).physical_offset == 0
    assert second.entry(1).physical_offset == 1900
    second.close()
    coming = tmp_path / "coming"
    coming.write_bytes(other)
    coming.rename(second.path)
    assert second.entry(1).physical_offset == 0
    assert first.destroy(0)
    assert sorted(tmp_path.iterdir()) == [second.path]
