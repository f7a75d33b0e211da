"""All index files together: loading, asking by key, and files that are made."""

from __future__ import annotations

import errno
import os
import re
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, RemovedError, UnreadableError
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry
from rmqctl.store.index.index_service import IndexService, index_file_name
from tests.goldens import properties, tree_state, truth
from tests.opened import reader
from tests.store.index.offsets import filled_service, offsets_of, service_of


@pytest.mark.parametrize("name", ["clean", "v4-clean", "features", "broker-real"])
def test_offsets_of_every_key_of_a_golden(name: str) -> None:
    expected: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in truth(name).messages:
        if row["sysFlag"] & 0xC == 0xC:
            continue
        keys = [row["properties"].get("UNIQ_KEY", ""), *row["properties"].get("KEYS", "").split(" ")]
        for key in filter(None, keys):
            expected[row["topic"], key].add(row["phyOffset"])
    index = reader(name).files.index
    for (topic, key), offsets in expected.items():
        found = list(offsets_of(index, topic, key))
        assert found == sorted(found, reverse=True)
        assert len(found) == len(set(found))
        assert offsets <= set(found)
    assert list(offsets_of(index, "TopicTest", "no such key")) == []


def test_rocketmqs_own_answers() -> None:
    """What RocketMQ finds by key, we find."""
    index = reader("clean").files.index
    compared = 0
    for row in truth("clean").queries:
        found = set(offsets_of(index, row["topic"], row["key"]))
        assert set(row["phyOffsets"]) <= found
        compared += bool(row["phyOffsets"])
    assert compared > 100


def test_files_roll_when_full(tmp_path: Path) -> None:
    service = service_of(tmp_path)
    full = [number for number in range(45) if service.put("T", f"key{number % 7}", number * 100, 1_700_000_000_000)]
    service.close()
    assert full == [18, 37]  # entry 0 is never used: 19 of 20
    assert [file.header.index_count for file in service.files] == [20, 20, 8]
    names = [file.path.name for file in service.files]
    assert names == sorted(set(names))
    again = service_of(tmp_path)
    assert list(offsets_of(again, "T", "key3")) == [number * 100 for number in range(44, -1, -1) if number % 7 == 3]


def test_names_are_local_times_and_never_repeat(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d{17}", index_file_name(1_700_000_000_123))
    assert index_file_name(1_700_000_000_123).endswith("123")
    service = service_of(tmp_path)
    made = [service.create_file(1_700_000_000_999).path.name for _ in range(3)]
    assert made == sorted(set(made))
    service.close()


def test_names_follow_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert index_file_name(1_700_000_000_005) == "20231114221320005"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_geometry_of_new_files(tmp_path: Path) -> None:
    filled_service(tmp_path, 30)
    assert service_of(tmp_path, StoreConfig()).geometry == Geometry(10, 20)  # that of the files
    assert service_of(tmp_path, StoreConfig(max_hash_slot_num=5, max_index_num=9)).geometry == Geometry(5, 9)
    assert service_of(tmp_path / "none", StoreConfig()).geometry == Geometry(5_000_000, 20_000_000)
    assert service_of(tmp_path, StoreConfig(max_index_num=9)).geometry == Geometry(5_000_000, 9)


def test_a_wrong_configuration_does_not_read_garbage(tmp_path: Path) -> None:
    filled_service(tmp_path, 30)
    # of the same length, with other slots
    wrong = service_of(tmp_path, StoreConfig(max_hash_slot_num=20, max_index_num=18))
    assert Geometry(20, 18).file_size == Geometry(10, 20).file_size
    assert {file.geometry for file in wrong.files} == {Geometry(10, 20)}
    assert wrong.problems == []


def test_an_empty_last_file_has_the_geometry_of_the_others(tmp_path: Path) -> None:
    """Nothing in an empty file tells how many slots it has."""
    config = StoreConfig(max_hash_slot_num=30, max_index_num=70)
    service = filled_service(tmp_path, 40, config)
    service.create_file()
    again = service_of(tmp_path, StoreConfig())
    assert [file.geometry for file in again.files] == [Geometry(30, 70)] * 2
    assert again.problems == []


def test_strange_files_are_named(tmp_path: Path) -> None:
    filled_service(tmp_path, 5)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "20200101000000000").write_bytes(b"short")
    (tmp_path / "20200101000000001").write_bytes(b"\xff" * 500)
    (tmp_path / "20200101000000002").mkdir()
    os.mkfifo(tmp_path / "20200101000000003")
    (tmp_path / "20200101000000004").symlink_to("nowhere")
    (tmp_path / "２0200101000000005").write_bytes(b"x")
    before = tree_state(tmp_path)
    service = service_of(tmp_path)
    assert len(service.files) == 1
    assert len(service.problems) == 7
    assert tree_state(tmp_path) == before


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("x")
    with pytest.raises(UnreadableError, match="cannot be listed"):
        service_of(tmp_path / "index")
    assert service_of(tmp_path / "none").files == []
    assert not (tmp_path / "none").exists()


def test_a_file_of_which_the_disk_says_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whoever mends the index it is one more file that is no good."""
    filled_service(tmp_path, 30)
    first = min(tmp_path.iterdir())
    whole, asked = os.stat, []

    def fail(path: object, *arguments: Any, **options: Any) -> os.stat_result:
        asked.append(str(path))
        if asked.count(str(first)) > 1 and asked[-1] == str(first):  # behind the look at what it is
            raise InterruptedError(errno.EINTR, "Interrupted system call", str(path))
        return whole(path, *arguments, **options)  # type: ignore[arg-type]

    service = IndexService(tmp_path, StoreConfig(), Descriptors())
    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(UnreadableError, match="cannot be looked at") as raised:
        service.load()
    assert str(first) in str(raised.value)
    asked.clear()
    service = IndexService(tmp_path, StoreConfig(), Descriptors())
    service.load(is_to_be_mended=True)
    assert [path for path, _ in service.problems] == [first]


@pytest.mark.parametrize("entry", [8, 15, 100])
def test_damage_is_not_absence(tmp_path: Path, entry: int) -> None:
    """A chain that leads nowhere is an error when it is followed, or the file was not taken for an index at all."""
    config = StoreConfig(max_hash_slot_num=10, max_index_num=200)
    filled_service(tmp_path, 150, config)
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, Geometry(10, 200).entry_position(entry) + 16, entry)
    path.write_bytes(data)
    service = service_of(tmp_path, config)
    if entry == 100:
        with pytest.raises(CorruptError):
            list(offsets_of(service, "T", f"key{(entry - 1) % 7}"))
    else:
        assert [problem[0] for problem in service.problems] == [path]


def test_files_on_their_way_out_are_passed_over(tmp_path: Path) -> None:
    service = filled_service(tmp_path, 30)
    again = service_of(tmp_path)
    assert again.files[0].destroy(0)
    assert list(offsets_of(again, "T", "key1")) == [number * 100 for number in range(29, 18, -1) if number % 7 == 1]
    assert len(service.files) == 2


def test_golden_configuration_is_the_geometry() -> None:
    assert properties("clean")["store.maxHashSlotNum"] == "500"
    assert reader("clean").files.index.geometry == Geometry(500, 2000)


def test_a_file_that_goes_while_the_folder_is_read_was_removed(tmp_path: Path) -> None:
    """Those who look begin anew then, and call it no defect."""
    service = IndexService(tmp_path, StoreConfig(), Descriptors())
    with pytest.raises(RemovedError):
        service._geometry_of(tmp_path / "20260101000000000")
