"""Ext units that a writer puts with enableConsumeQueueExt, against the rules of ConsumeQueueExt."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from rmqctl.formats.checksums import tags_code
from rmqctl.store.check.check import check
from rmqctl.store.files.layout import file_name
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import tell_notices
from rmqctl.store.queues.consumequeue import ext_address, ext_offset
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write import dispatch as reput
from tests.goldens import GoldenStore
from tests.store.write.writing import copy_store, files_below, golden_config, message, small

SIZE = 50
CONFIG = small(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=SIZE)
TIME = 1_700_000_000_000


def put(root: Path, *tags: str, size: int = SIZE) -> None:
    """Put a message of each tag, all of one store time."""
    config = CONFIG._replace(mapped_file_size_consume_queue_ext=size)
    with MessageStore.open(root, "rw", config, create=True, clock=lambda: TIME) as store:
        for tag in tags:
            assert store.put(message(10, properties={"TAGS": tag})).status.is_stored


def unit(tag: str) -> bytes:
    """An ext unit as CqExtUnit#write makes it without a bit map."""
    return struct.pack(">hqqh", 20, tags_code(tag), TIME, 0)


def codes(root: Path, topic: str = "TopicA", queue_id: int = 0) -> list[int]:
    """The tags codes in the queue's units as stored."""
    with StoreFiles(root, CONFIG) as files:
        queue = files.queues.find(topic, queue_id)
        assert queue is not None
        return [found.tags_code for found in queue.units(0)]


def tags_found(root: Path, *tags: str) -> list[str]:
    """The tags of the messages that a reader gets who asks for `tags`."""
    with MessageStore.open(root, "r", CONFIG) as store:
        return [found.properties()["TAGS"] for found in store.get("TopicA", 0, 0, 32, tags="||".join(tags)).messages]


def ext_files(root: Path) -> dict[str, bytes]:
    return files_below(root / "consumequeue_ext/TopicA/0")


def test_units_go_on_in_the_next_file_and_after_a_new_start(tmp_path: Path) -> None:
    blank = b"\xff\xff" + bytes(8)
    put(tmp_path, "a", "b", "c")
    assert ext_files(tmp_path) == {
        file_name(0): unit("a") + unit("b") + blank,
        file_name(50): unit("c") + bytes(30),
    }
    put(tmp_path, "d", "e")
    assert ext_files(tmp_path) == {
        file_name(0): unit("a") + unit("b") + blank,
        file_name(50): unit("c") + unit("d") + blank,
        file_name(100): unit("e") + bytes(30),
    }
    assert codes(tmp_path) == [ext_address(at) for at in (0, 20, 50, 70, 100)]
    assert tags_found(tmp_path, "b", "d") == ["b", "d"]
    with StoreFiles(tmp_path, CONFIG) as files:
        assert list(check(files)) == []


@pytest.mark.parametrize(("size", "second"), [(43, 43), (44, 20)])
def test_four_bytes_stay_free_at_the_end_of_a_file(tmp_path: Path, size: int, second: int) -> None:
    put(tmp_path, "a", "b", size=size)
    assert codes(tmp_path) == [ext_address(0), ext_address(second)]


def test_what_the_queue_does_not_refer_to_is_overwritten(tmp_path: Path) -> None:
    """As it stays after the log was cut: a broker cuts the ext files behind the last address, too."""
    put(tmp_path, "a")
    folder = tmp_path / "consumequeue_ext/TopicA/0"
    with_bit_map = struct.pack(">hqqh", 29, 1, TIME, 9) + b"b" * 9
    (folder / file_name(0)).write_bytes(unit("a") + with_bit_map + b"\1")
    (folder / file_name(50)).write_bytes(with_bit_map.ljust(50, b"\1"))
    put(tmp_path, "b")
    assert ext_files(tmp_path)[file_name(0)] == unit("a") + unit("b") + bytes(10)
    put(tmp_path, "c")
    assert ext_files(tmp_path)[file_name(50)] == unit("c") + bytes(30)
    assert tags_found(tmp_path, "a", "c") == ["a", "c"]


@pytest.mark.parametrize("harm", ["lost", "short"])
def test_where_no_unit_can_follow_a_message_keeps_its_tags_code(tmp_path: Path, harm: str) -> None:
    put(tmp_path, "a")
    folder = tmp_path / "consumequeue_ext/TopicA/0"
    if harm == "lost":
        shutil.rmtree(folder)
    else:
        (folder / file_name(0)).write_bytes(unit("a"))
    before = ext_files(tmp_path)
    said: list[str] = []
    tell_notices(said.append)
    try:
        put(tmp_path, "b", "c")
    finally:
        tell_notices(None)
    assert codes(tmp_path) == [ext_address(0), tags_code("b"), tags_code("c")]
    assert ext_files(tmp_path) == before
    assert [f"{folder}: no ext units are written" in sentence for sentence in said] == [True]
    assert tags_found(tmp_path, "b") == ["b"]


def test_a_queue_with_plain_codes_gets_ext_units_from_now_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, "rw", small(), create=True) as store:
        store.put(message(10, properties={"TAGS": "a"}))
    put(tmp_path, "b")
    assert codes(tmp_path) == [tags_code("a"), ext_address(0)]


def test_queues_of_multi_dispatch_and_batch_queues_get_none(golden_store: GoldenStore, tmp_path: Path) -> None:
    for name in ("lmq", "innerbatch"):
        config = golden_config(name)._replace(enable_consume_queue_ext=True)
        copy_store(golden_store(name), tmp_path / name, config)
        with StoreFiles(tmp_path / name, config) as files:
            for queue in files.queues.all():
                is_plain = queue.kind == "BatchCQ" or queue.topic.startswith("%LMQ%")
                addresses = [ext_offset(unit.tags_code) for unit in queue.units(0) if unit.is_written]
                assert addresses
                assert {address is None for address in addresses} == {is_plain}, queue.topic


def test_what_is_put_in_bulk_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "_COLUMNS_AFTER", 0)
    with MessageStore.open(tmp_path, "rw", CONFIG, create=True) as store:
        store.put_many([message(10, properties={"TAGS": "a"}) for _ in range(300)])
        store.wait_for_dispatch()
    assert codes(tmp_path) == [ext_address(at // 2 * 50 + at % 2 * 20) for at in range(300)]
