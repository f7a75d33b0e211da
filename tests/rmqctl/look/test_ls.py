"""`rmqctl ls`."""

from __future__ import annotations

from collections import Counter

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.output.plot import sparkline
from rmqctl.store import MessageStore
from rmqctl.store.info import counts as counts_module
from rmqctl.store.info.counts import messages_over_time
from tests.goldens import truth
from tests.opened import store_path
from tests.rmqctl.looking import run

QUEUE_NAMES = {
    "topic",
    "queue_id",
    "min_offset",
    "max_offset",
    "messages",
    "bytes",
    "first_store_timestamp",
    "last_store_timestamp",
}


def test_topics() -> None:
    found = {row["topic"]: row for row in run("ls", "-s", store_path("clean"), "--json").objects}
    rows = truth("clean").messages
    assert set(found) == {row["topic"] for row in rows}
    for topic, row in found.items():
        own = [one for one in rows if one["topic"] == topic]
        assert (row["messages"], row["bytes"]) == (len(own), sum(one["storeSize"] for one in own))
        assert row["first_store_timestamp"] == own[0]["storeTimestamp"]
        assert row["last_store_timestamp"] == own[-1]["storeTimestamp"]


def test_queues() -> None:
    found = run("ls", "-s", store_path("clean"), "--queues", "--json").objects
    expected = [(row["topic"], row["queueId"], row["min"], row["max"]) for row in truth("clean").queues if row["units"]]
    assert sorted((row["topic"], row["queue_id"], row["min_offset"], row["max_offset"]) for row in found) == sorted(
        expected
    )
    assert all(row.keys() >= QUEUE_NAMES for row in found)


def test_one_topic_and_one_queue() -> None:
    store = store_path("clean")
    assert len(run("ls", "-s", store, "--queues", "-t", "OrderTopic", "--json").objects) == 8
    (row,) = run("ls", "-s", store, "-t", "OrderTopic", "-q", 3, "--json").objects
    assert (row["topic"], row["queue_id"]) == ("OrderTopic", 3)
    assert [row["topic"] for row in run("ls", "-s", store, "-t", "OrderTopic", "--json").objects] == ["OrderTopic"]


def test_files() -> None:
    done = run("ls", "-s", store_path("broker-real"), "--files", "--json")
    found = {row["path"]: row for row in done.objects}
    assert found["timerwheel"]["readable"] is True
    assert found["timerwheel"]["kind"] == "timerwheel"
    assert found["timerwheel"]["on_disk_bytes"] < found["timerwheel"]["size"]
    assert len(found) == len(truth("broker-real").summary["filesBefore"])


def test_lost_or_unreadable_queues_are_counted_from_the_log_and_it_is_said() -> None:
    for name in ("rocksdb", "cq-lost"):
        done = run("ls", "-s", store_path(name), "--json")
        assert done.code == exit_codes.OK
        assert ("counted from the commitlog" in done.err) == (name == "cq-lost")
        assert sum(row["messages"] for row in done.objects) == truth(name).summary["messages"]
    assert run("ls", "-s", store_path("rocksdb"), "--queues").code == exit_codes.OK
    assert run("ls", "-s", store_path("cq-lost"), "--queues").code == exit_codes.DAMAGE_IN_THE_WAY


def test_a_topic_that_is_not_there() -> None:
    done = run("ls", "-s", store_path("clean"), "-t", "OrderTopik")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "OrderTopic" in done.err


def test_files_take_no_topic() -> None:
    assert run("ls", "-s", store_path("clean"), "--files", "-t", "T").code == exit_codes.USAGE


def test_a_table_draws_when_messages_were_stored() -> None:
    store = store_path("broker-real")
    with MessageStore.open(store) as opened:
        drawn = {
            row["topic"]: messages_over_time(opened.reader, row["topic"], 0, 1 << 45, 1) for row in opened.topics()
        }
        rows = list(opened.topics())
        first, last = (
            min(row["first_store_timestamp"] for row in rows),
            max(row["last_store_timestamp"] for row in rows),
        )
        counts = messages_over_time(opened.reader, None, first, last, 8)
    assert drawn == {row["topic"]: {row["topic"]: [row["messages"]]} for row in rows}
    messages = run("cat", "-s", store, "--json").objects
    for topic, found in counts.items():
        times = [one["store_timestamp"] for one in messages if one["topic"] == topic]
        parts = Counter((time - first) * 8 // (last - first + 1) for time in times)
        assert found == [parts[part] for part in range(8)]
    lines = run("ls", "-s", store).out.splitlines()
    assert lines[0].endswith("over time")
    assert "█" in next(line for line in lines if line.startswith("Events"))
    assert run("ls", "-s", store, "--json").objects == rows


def test_many_queues_are_sampled_or_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(store_path("broker-real")) as opened:
        monkeypatch.setattr(counts_module, "_MOST_EXACT", 0)
        monkeypatch.setattr(counts_module, "_MOST_SAMPLED", 28 * 4)
        found = messages_over_time(opened.reader, None, 0, 1 << 45, 1)
        assert {name: count for name, (count,) in found.items()} == {
            row["topic"]: pytest.approx(row["messages"], abs=2) for row in opened.topics()
        }
        monkeypatch.setattr(counts_module, "_MOST_SAMPLED", 28 * 4 - 1)
        assert messages_over_time(opened.reader, None, 0, 1 << 45, 1) == {}
        assert not run("ls", "-s", store_path("broker-real")).out.splitlines()[0].endswith("over time")


def test_sparklines() -> None:
    assert sparkline([0, 1, 4, 8], "utf-8") == " ▁▄█"
    assert sparkline([0, 1, 4, 8], "ascii").isascii()
    assert sparkline([], "utf-8") == ""
    assert sparkline([0, 0], "utf-8") == "  "
    assert sparkline([1, 10**9], None) == "▁█"
