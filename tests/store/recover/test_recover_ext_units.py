"""Ext units after `recover` and `truncate` with enableConsumeQueueExt: as the real broker wrote them, byte for byte."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.checksums import tags_code
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.journal.undo import undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.consumequeue import ext_offset
from rmqctl.store.recover.ext_units import ExtUnits
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.store.write.writing import message, small

SIZE = 50
CONFIG = small(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=SIZE)
TIME = 1_700_000_000_000
QUEUE = "TopicTest/0"


def contents(store: Path) -> dict[str, str]:
    return {path: state[2] for path, state in tree_state(store).items() if path.startswith("consumequeue")}


def recovered(store: Path) -> None:
    with StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent))) as files:
        recover(files)


def queue_file(store: Path, number: int = 0) -> Path:
    return sorted((store / "consumequeue" / QUEUE).iterdir())[number]


def ext_file(store: Path, number: int = 0) -> Path:
    return sorted((store / "consumequeue_ext" / QUEUE).iterdir())[number]


def overwritten(path: Path, begin: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[begin : begin + len(data)] = data
    path.write_bytes(content)


def all_queues_lost(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def all_ext_files_lost(store: Path) -> None:
    shutil.rmtree(store / "consumequeue_ext")


def both_lost(store: Path) -> None:
    all_queues_lost(store)
    all_ext_files_lost(store)


def end_of_a_queue_lost(store: Path) -> None:
    path = queue_file(store)
    overwritten(path, 60, bytes(path.stat().st_size - 60))


def end_of_a_queue_and_its_ext_units_lost(store: Path) -> None:
    end_of_a_queue_lost(store)
    path = ext_file(store)
    overwritten(path, 60, bytes(path.stat().st_size - 60))


def middle_of_a_queue_overwritten(store: Path) -> None:
    overwritten(queue_file(store), 40, b"\x55" * 60)


def address_of_a_unit_changed(store: Path) -> None:
    overwritten(queue_file(store), 12, struct.pack(">q", -(1 << 63) + 10**6))


def code_in_an_ext_unit_changed(store: Path) -> None:
    overwritten(ext_file(store), 20 + 2, b"\x55" * 8)


def size_in_an_ext_unit_changed(store: Path) -> None:
    overwritten(ext_file(store), 20, b"\x55\x55")


def ext_file_of_zeros(store: Path) -> None:
    path = ext_file(store)
    path.write_bytes(bytes(path.stat().st_size))


def ext_file_of_no_bytes(store: Path) -> None:
    for path in (store / "consumequeue_ext").glob("*/*/0*"):
        path.write_bytes(b"")


DAMAGE = [
    all_queues_lost,
    all_ext_files_lost,
    both_lost,
    end_of_a_queue_lost,
    end_of_a_queue_and_its_ext_units_lost,
    middle_of_a_queue_overwritten,
    address_of_a_unit_changed,
    code_in_an_ext_unit_changed,
    size_in_an_ext_unit_changed,
    ext_file_of_zeros,
    ext_file_of_no_bytes,
]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["cqext", "v4-cqext"])
def test_queues_and_ext_units_come_back(golden_store: GoldenStore, name: str, damage: Callable[[Path], None]) -> None:
    store = golden_store(name)
    whole = contents(store)
    damage(store)
    assert contents(store) != whole
    recovered(store)
    assert contents(store) == whole


# ---- ext files of 50 bytes: two units each, then a blank


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """A store of six messages in one queue, whose ext units are in three files."""
    root = tmp_path / "store"
    put(root, *"abcdef")
    return root


def put(root: Path, *tags: str) -> None:
    with MessageStore.open(root, "rw", CONFIG, create=True, clock=lambda: TIME) as store:
        for tag in tags:
            assert store.put(message(10, properties={"TAGS": tag})).status.is_stored


def mended(root: Path) -> None:
    with StoreFiles(root, CONFIG) as files:
        recover(files)


def units_of(root: Path) -> Path:
    (path,) = (root / "consumequeue/TopicA/0").iterdir()
    return path


def ext_path(root: Path, start: int) -> Path:
    return root / "consumequeue_ext/TopicA/0" / f"{start:020}"


def codes(root: Path) -> list[int]:
    """Return the tags code of each unit that is written."""
    with StoreFiles(root, CONFIG) as files:
        queue = files.queues.find("TopicA", 0)
        assert queue is not None
        return [unit.tags_code for unit in queue.units(0)]


def tags_found(root: Path) -> list[str]:
    """Return what a reader gets that asks for each tag by itself."""
    with MessageStore.open(root, "r", CONFIG) as store:
        return [
            found.properties()["TAGS"] for tag in "abcdef" for found in store.get("TopicA", 0, 0, 32, tags=tag).messages
        ]


def no_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def no_ext_file(root: Path) -> None:
    ext_path(root, 50).unlink()


def first_ext_file_of_zeros(root: Path) -> None:
    ext_path(root, 0).write_bytes(bytes(SIZE))


def end_cut_off(root: Path) -> None:
    overwritten(units_of(root), 60, bytes(60))
    ext_path(root, 100).unlink()
    overwritten(ext_path(root, 50), 20, bytes(30))


def end_overwritten(root: Path) -> None:
    overwritten(units_of(root), 60, bytes(60))
    overwritten(ext_path(root, 50), 20, b"\x01" * 30)
    ext_path(root, 100).write_bytes(b"\x01" * 50)


@pytest.mark.parametrize("damage", [no_queue, no_ext_file, first_ext_file_of_zeros, end_cut_off, end_overwritten])
def test_ext_units_in_several_files_come_back(small_store: Path, damage: Callable[[Path], None]) -> None:
    whole = contents(small_store)
    damage(small_store)
    assert contents(small_store) != whole
    mended(small_store)
    assert contents(small_store) == whole
    assert tags_found(small_store) == list("abcdef")
    mended(small_store)
    assert contents(small_store) == whole


def test_where_no_ext_unit_can_follow_in_order_a_unit_gets_its_plain_code(small_store: Path) -> None:
    """A broker removes every ext unit after the one that the last unit of the queue refers to."""
    whole = units_of(small_store).read_bytes()
    ext_before = [path.read_bytes() for path in sorted(ext_path(small_store, 0).parent.iterdir())]
    # the second unit refers to the ext unit of the third, which no unit has to itself
    overwritten(units_of(small_store), 32, whole[52:60])
    mended(small_store)
    assert units_of(small_store).read_bytes() == whole
    # a unit with a plain code, as without the setting, stays as it is
    code = struct.pack(">q", tags_code("b"))
    overwritten(units_of(small_store), 32, code)
    with_plain = units_of(small_store).read_bytes()
    mended(small_store)
    assert units_of(small_store).read_bytes() == with_plain
    # the ext units of the first and second message are those of no message: the third keeps its own
    overwritten(ext_path(small_store, 0), 0, struct.pack(">hqqh", 40, 1, TIME, 20))
    overwritten(units_of(small_store), 20, bytes(20))
    mended(small_store)
    assert codes(small_store)[1] == tags_code("b")
    assert [ext_offset(code) for code in codes(small_store)[2:]] == [50, 70, 100, 120]
    assert [path.read_bytes() for path in sorted(ext_path(small_store, 0).parent.iterdir())][1:] == ext_before[1:]
    assert tags_found(small_store) == list("abcdef")


def test_undo_takes_ext_units_back(small_store: Path) -> None:
    end_overwritten(small_store)
    before = tree_state(small_store)
    with StoreFiles(small_store, CONFIG) as files:
        recover(files)
    with StoreFiles(small_store, CONFIG) as files:
        undo(files.layout)
    assert tree_state(small_store) == before


def test_without_the_setting_units_get_plain_codes(small_store: Path) -> None:
    no_queue(small_store)
    before = {path: state for path, state in contents(small_store).items() if path.startswith("consumequeue_ext")}
    with StoreFiles(small_store, CONFIG._replace(enable_consume_queue_ext=False)) as files:
        recover(files)
    assert codes(small_store) == [tags_code(tag) for tag in "abcdef"]
    assert {path: state for path, state in contents(small_store).items() if path in before} == before


def test_what_is_put_after_a_truncation_follows_the_last_unit_that_stayed(small_store: Path) -> None:
    whole = contents(small_store)
    with StoreFiles(small_store, CONFIG) as files:
        queue = files.queues.find("TopicA", 0)
        assert queue is not None
        unit = queue.unit(3)
        assert unit is not None
        truncate(files, unit.physical_offset)
    assert [ext_offset(code) for code in codes(small_store)] == [0, 20, 50]
    put(small_store, *"def")
    assert contents(small_store) == whole


# ---- the ends of the fields of an ext unit: a size of 16 bits, signed


@pytest.mark.parametrize(
    ("following", "size"), [(19, 20), (20, 20), (21, 21), (0x7FFE, 0x7FFE), (0x7FFF, 0x7FFF), (0x8000, 20), (None, 20)]
)
def test_a_lost_ext_unit_is_as_long_as_the_next_one_says(small_store: Path, following: int | None, size: int) -> None:
    """The size is a short: a gap that no unit fills leaves a unit without a bit map."""
    with StoreFiles(small_store, CONFIG) as files:
        units = ExtUnits(small_store / "consumequeue_ext" / "TopicB" / "0", 1 << 20, files.log.descriptors, files.log)
        assert units._written_again(0, following, 7, TIME) == 0
    ((offset, data),) = units._pieces
    assert (offset, struct.unpack(">hqqh", data)) == (0, (size, 7, TIME, size - 20))
