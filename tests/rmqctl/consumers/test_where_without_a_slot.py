"""Messages that no queue has a slot for: an impossible queue offset, a topic that was deleted and created again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store import Message, MessageStore
from rmqctl.store.config.config import StoreConfig
from tests.goldens import GoldenStore
from tests.rmqctl.looking import run
from tests.store.check.breaking import messages, put_field

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
LONG = 1 << 63


@pytest.mark.parametrize("is_last", [False, True], ids=["inside", "last"])
@pytest.mark.parametrize("queue_offset", [LONG - 1, 1 << 62, 1 << 40, -1, -LONG])
def test_an_impossible_queue_offset(golden_store: GoldenStore, queue_offset: int, is_last: bool) -> None:
    store = golden_store("broker-real")
    events = [one for one in messages(store) if (one.topic, one.queue_id) == ("Events", 0)]
    chosen = events[-1] if is_last else events[15]
    put_field(store, chosen.physical_offset, "queue_offset", queue_offset)
    # its old slot still leads to it
    refused = run("append", "-s", store, "-t", "Events", "--body", "x")
    assert (refused.code, "rmqctl recover" in refused.err) == (5, True)
    run("recover", "-s", store, "-y")
    (finding,) = [one for one in run("check", "-s", store, "--json").objects if one.get("code") == "RMQ-CQ-018"]
    assert f"cannot be right: slot {queue_offset}, first message at physical offset" in finding["message"]
    assert finding["expected"].startswith(f"offset {chosen.physical_offset} size {chosen.total_size}")
    # nothing else could be done for it here, so nothing is asked for
    assert run("append", "-s", store, "-t", "Events", "--body", "x").code == 0
    row = run("where", chosen.physical_offset, "-s", store, "--json").objects[0]
    assert row["state"] == "no-slot"
    assert f"its queue offset {queue_offset} cannot be right, and no checksum covers it" in row["sentence"]
    assert "come first" not in str(row)
    assert "is past it" not in str(row)


def test_a_topic_that_was_created_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for body in (b"old", b"new"):
        with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
            for number in range(3):
                opened.put(Message("T", body, properties={"KEYS": f"{body.decode()}{number}"}))
        if body == b"old":
            assert run("purge", "-s", store, "-t", "T", "-y").code == 0
    for number in range(3):
        row = run("where", f"old{number}", "-s", store, "--json").objects[0]
        assert row["state"] == "no-slot"
        assert "the topic was deleted and created again: T queue 0 has a later message" in row["sentence"]
        assert run("where", f"new{number}", "-s", store, "--json").objects[0]["state"] == "stored"


def test_a_queue_offset_that_was_given_twice(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
        for number in range(3):
            opened.put(Message("T", b"x", properties={"KEYS": f"k{number}"}))
    put_field(store, messages(store)[1].physical_offset, "queue_offset", 2)
    run("recover", "-s", store, "-y")
    row = run("where", "k1", "-s", store, "--json").objects[0]
    assert (row["state"], "its queue offset was given twice" in row["sentence"]) == ("no-slot", True)


def test_nothing_is_left_after_a_purge_of_all_topics(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
        for topic in ("A", "B"):
            opened.put(Message(topic, b"x"))
    assert run("purge", "-s", store, "-t", "A", "-t", "B", "-y").code == 0
    for words in ((), ("--topics",), ("-t", "A"), ("--queues",)):
        done = run("ls", "-s", store, *words)
        assert (done.code, done.out, "cannot be read" in done.err) == (1, "", False), done.err
    # what is not removed is counted from the log still
    with MessageStore.open(store, "rw", CONFIG) as opened:
        opened.put(Message("C", b"x"))
    for path in (store / "consumequeue" / "C").rglob("*"):
        if path.is_file():
            path.unlink()
    done = run("ls", "-s", store, "--json")
    assert ([row["topic"] for row in done.objects], "counted from the commitlog" in done.err) == (["C"], True)
