"""`rmqctl query -o`: why no queue leads to a message, and messages that only brokers cannot read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.goldens import GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.looking import run
from tests.store.logs import frame
from tests.store.overflows import long_properties, overflowed

TOPIC = "TopicTest"
_WHY = (
    "length 33010 of the properties is over 32767, a broker reads it as -32526: it gives the message no queue unit, "
    "and ends the log before it when it recovers"
)


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


@pytest.mark.parametrize("place", ["offset", "slot"])
def test_where_says_the_same_of_a_message_that_only_brokers_cannot_read(tmp_path: Path, place: str) -> None:
    before, store = frame(0, b"first"), tmp_path / "store"
    offset = len(before)
    data = overflowed(offset, long_properties(33010))
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes((before + data).ljust(1 << 20, b"\0"))
    units = [(0, len(before), 0), (offset, len(data), 0)]
    (store / "consumequeue" / "T" / "0").mkdir(parents=True)
    queue = b"".join(CONSUMEQUEUE_UNIT.struct.pack(*unit) for unit in units)
    (store / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(queue.ljust(2000, b"\0"))
    words: list[object] = [offset] if place == "offset" else ["T", 0, 1]
    shown = run("query", "-s", store, "-o", offset, "--json")
    assert f"dispatch: {_WHY}" in shown.err
    done = run("where", "-s", store, *words, "--json")
    row = done.objects[0]
    assert (row["state"], row["topic"], row["queue_id"], row["queue_offset"]) == ("damaged", "T", 0, 1)
    assert (row["physical_offset"], row["msg_id"], row["keys"]) == (offset, shown.objects[0]["msg_id"], "k1")
    assert row["sentence"].startswith(f"It is stored intact, but no consumer can get it: {_WHY}")
    assert f"`rmqctl query -o {offset}` shows it" in row["sentence"]
    assert "No message can be read" not in row["sentence"]
