"""Messages that no queue has a slot for: an impossible queue offset, a topic that was deleted and created again."""

from __future__ import annotations

import shutil
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


def test_an_impossible_queue_id(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
        opened.put(Message("T", b"x"))
    put_field(store, 0, "queue_id", -3)
    row = run("where", 0, "-s", store, "--json").objects[0]
    assert (row["state"], "its queue id -3 cannot be right" in row["sentence"]) == ("no-slot", True)


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


def _created_again(store: Path) -> Path:
    """Give T five messages, and three more once it was removed and created again; a group is at 4."""
    for number in (5, 3):
        with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
            for key in range(number):
                opened.put(Message("T", b"x", properties={"KEYS": f"{number}-{key}"}))
        if number == 5:
            assert run("purge", "-s", store, "-t", "T", "-y").code == 0
    path = store / "config/consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"offsetTable":{"T@g":{0:4},"T@h":{0:2}}}')
    return path


def test_an_offset_past_the_end_has_read_nothing_of_a_topic_created_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _created_again(store)
    (row,) = run("where", "T", 0, 1, "-s", store, "--json").objects
    assert row["state"] == "unknown"
    past, read = row["groups"]
    assert (past["group"], past["state"], past["detail"]) == (
        "g",
        "unknown",
        "has an offset past the end of the queue (4)",
    )
    assert (read["group"], read["state"]) == ("h", "read")
    assert [step["state"] for step in row["evidence"] if step["stage"] == "group"] == ["past-end", "passed"]


def test_the_offset_of_a_topic_created_again_goes_to_its_first_message(tmp_path: Path) -> None:
    """The end, where offsets past it are set else, would pass over messages that the group never had."""
    store = tmp_path / "store"
    path = _created_again(store)
    done = run("check", "-s", store, "--json")
    (found,) = [row for row in done.objects if row.get("code") == "RMQ-OFF-001"]
    assert "the topic was created again, and the group has not consumed messages 0 to 2" in found["message"]
    assert (found["queue_id"], found["expected"], found["found"]) == (0, 0, 4)
    assert run("repair", "-s", store, "--only", "RMQ-OFF-001", "-y").code == 0
    assert "".join(path.read_text().split()) == '{"offsetTable":{"T@g":{0:0},"T@h":{0:2}}}'
    assert run("check", "-s", store).code == 0


def test_a_place_that_only_an_earlier_life_had(tmp_path: Path) -> None:
    """The present queue is shorter than the one before its topic was created again."""
    store = tmp_path / "store"
    for life, length in enumerate((5, 2)):
        with MessageStore.open(store, "rw", CONFIG, create=True) as opened:
            for number in range(length):
                opened.put(Message("T", b"x", properties={"KEYS": f"k{life}-{number}"}))
        if not life:
            assert run("purge", "-s", store, "-t", "T", "-y").code == 0
    row = run("where", "T", 0, 3, "-s", store, "--json").objects[0]
    assert (row["keys"], row["state"]) == ("k0-3", "no-slot")
    assert "the topic was deleted and created again" in row["sentence"]
    assert run("where", "T", 0, 1, "-s", store, "--json").objects[0]["keys"] == "k1-1"
    assert run("where", "T", 0, 5, "-s", store, "--json").objects[0]["state"] == "absent"


def test_a_slot_that_was_lost_is_of_the_last_life(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for life in range(2):
        with MessageStore.open(store, "rw", CONFIG._replace(mapped_file_size_consume_queue=100), create=True) as opened:
            for number in range(7):
                opened.put(Message("T", b"x", properties={"KEYS": f"k{life}-{number}"}))
        if not life:
            assert run("purge", "-s", store, "-t", "T", "-y").code == 0
    (store / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    assert run("where", "T", 0, 2, "-s", store, "--json").objects[0]["keys"] == "k1-2"


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


def test_a_queue_offset_beyond_the_end_was_not_given_twice(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", create=True) as opened:
        for number in range(8):
            opened.put(Message("T", b"x", properties={"KEYS": f"k{number}"}))
    put_field(store, messages(store)[3].physical_offset, "queue_offset", 1000)
    sentence = run("where", "k3", "-s", store, "--json").objects[0]["sentence"]
    assert "given twice" not in sentence
    assert "its queue offset 1000 is beyond the end of the queue" in sentence


def test_a_slot_of_a_light_queue_hides_not_that_of_the_topic(tmp_path: Path) -> None:
    """Two messages have one offset in the light queue, each has its own in its topic."""
    store = tmp_path / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536, enable_lmq=True, enable_multi_dispatch=True)
    with MessageStore.open(store, "rw", config, create=True) as opened:
        for number in (1, 2):
            properties = {"KEYS": f"k{number}", "INNER_MULTI_DISPATCH": "%LMQ%a"}
            opened.put(Message("A", b"x", queue_id=0, properties=properties))
    log = store / "commitlog" / "00000000000000000000"
    log.write_bytes(log.read_bytes().replace(b"INNER_MULTI_QUEUE_OFFSET\x011", b"INNER_MULTI_QUEUE_OFFSET\x010"))
    shutil.rmtree(store / "consumequeue" / "%LMQ%a")
    assert run("rebuild", "-s", store, "--queues").code in (0, 1)
    row = run("where", "k1", "-s", store, "-g", "G", "--json").objects[0]
    assert "no consumer can get it" not in row["sentence"]
    assert any(step["state"] == "superseded" for step in row["evidence"])


@pytest.mark.parametrize("slot", [0, 7, 89])
def test_a_slot_that_leads_to_an_earlier_message_of_another_queue(golden_store: GoldenStore, slot: int) -> None:
    store = golden_store("clean")
    wrong = (store / "consumequeue/TopicTest/1" / f"{0:020d}").read_bytes()[:20]
    path = store / "consumequeue/TopicTest/0" / f"{0:020d}"
    units = path.read_bytes()
    path.write_bytes(units[: 20 * slot] + wrong + units[20 * slot + 20 :])
    row = run("where", "TopicTest", 0, slot, "-s", store, "--json").objects[0]
    assert (row["state"], row["physical_offset"]) == ("no-slot", int.from_bytes(units[20 * slot :][:8], "big"))
