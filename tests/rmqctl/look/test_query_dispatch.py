"""`rmqctl query -o`: why no queue leads to a message, and messages that only brokers cannot read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rmqctl import exit_codes
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.looking import run
from tests.store.logs import frame
from tests.store.overflows import long_properties, overflowed

TOPIC = "TopicTest"


def _first() -> dict[str, Any]:
    rows = [row for row in truth("clean").messages if (row["topic"], row["queueId"]) == (TOPIC, 0)]
    return min(rows, key=lambda row: int(row["queueOffset"]))


def test_nothing_is_said_of_a_message_in_its_queue() -> None:
    done = run("query", "-s", store_path("clean"), "-o", _first()["commitLogOffset"], "--json")
    assert done.code == exit_codes.OK
    assert "dispatch" not in done.err


def test_a_queue_without_files(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue" / TOPIC / "0")
    done = run("query", "-s", store, "-o", _first()["commitLogOffset"], "--json")
    assert done.code == exit_codes.OK
    assert "slot 0 of TopicTest queue 0 is missing: the queue has no files" in done.err
    assert "queues lead to later messages" in done.err


def test_all_queues_end_before_the_message(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue")
    done = run("query", "-s", store, "-o", _first()["commitLogOffset"], "--json")
    assert "no queue leads to a later message" in done.err


def test_a_slot_that_another_message_has(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (path, *_) = sorted((store / "consumequeue" / TOPIC / "0").iterdir())
    data = bytearray(path.read_bytes())
    size = CONSUMEQUEUE_UNIT.size
    data[:size] = data[size : 2 * size]
    path.write_bytes(data)
    done = run("query", "-s", store, "-o", _first()["commitLogOffset"], "--json")
    assert "slot 0 of TopicTest queue 0 leads to physical offset" in done.err
    assert "passes over a message whose slot is taken" in done.err


def test_a_topic_that_is_no_directory_name(tmp_path: Path) -> None:
    sizes = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
    with MessageStore.open(tmp_path / "store", "rw", sizes, create=True) as store:
        store.put(Message("Order", b"body"))
    (log,) = (tmp_path / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        content = file.read(400)
        file.seek(content.index(b"Order"))
        file.write(b"../Or")
    done = run("query", "-s", tmp_path / "store", "-o", 0, "--json")
    assert "dispatch: its topic cannot be the name of a directory" in done.err


def test_properties_over_32767_bytes_are_shown_as_damage(tmp_path: Path) -> None:
    before = frame(0, b"first")
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    log = tmp_path / "store" / "commitlog" / f"{0:020d}"
    offset = len(before)
    log.write_bytes((before + overflowed(offset, long_properties(33010))).ljust(1 << 20, b"\0"))
    done = run("query", "-s", tmp_path / "store", "-o", offset, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    (row,) = done.objects
    assert (row["physical_offset"], row["body"]) == (offset, "the body")
    assert "a broker reads it as -" in done.err
