"""`rmqctl topics|groups create | change | delete`: in a store at rest, and through a name server on two brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.network.clients.client import Client
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.topic_config import ORDER_TOPIC_CONFIG
from rmqctl.store.config.config import StoreConfig
from tests.goldens import GoldenStore, tree_state
from tests.network.callers import with_header
from tests.network.serving import serving_here
from tests.rmqctl.looking import run

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
LIMIT = 60


def _entries(store: Path, name: str, table: str) -> dict[Any, Any]:
    content = parse_config_json((store / "config" / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return dict(content[table])


def test_a_topic_of_a_store_and_back(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    state = tree_state(store)
    assert "readQueueNums" in run("topics", "create", "-s", store, "-t", "New", "--queues", "4", "--dry-run").out
    assert tree_state(store) == state
    made = run(
        *("topics", "create", "-s", store, "-t", "New", "--queues", "4", "--attributes", "+message.type=FIFO", "--json")
    )
    assert made.objects[0]["after"]["attributes"] == {"message.type": "FIFO"}
    assert run("topics", "change", "-s", store, "-t", "New", "--perm", "r", "--order").code == 0
    entry = _entries(store, "topics.json", "topicConfigTable")["New"]
    assert [entry[name] for name in ("readQueueNums", "writeQueueNums", "perm", "order")] == [4, 4, 4, True]
    deleted = run("topics", "delete", "-s", store, "-t", "New")
    assert (deleted.code, "topic New deleted" in deleted.err) == (0, True)
    for _ in range(3):
        assert run("undo", "-s", store, "--yes").code == 0
    assert tree_state(store) == state


def test_a_group_of_a_store_and_back(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    state = tree_state(store)
    assert run("groups", "create", "-s", store, "-g", "billing", "--retry-max", "3", "--no-broadcast").code == 0
    assert run("groups", "change", "-s", store, "-g", "billing", "--no-consume").code == 0
    entry = _entries(store, "subscriptionGroup.json", "subscriptionGroupTable")["billing"]
    assert (entry["retryMaxTimes"], entry["consumeBroadcastEnable"], entry["consumeEnable"]) == (3, False, False)
    assert run("groups", "delete", "-s", store, "-g", "billing").code == 0
    for _ in range(3):
        assert run("undo", "-s", store, "--yes").code == 0
    assert tree_state(store) == state


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["topics", "create", "-t", "Events"], 5, "config/topics.json has Events already"),
        (["topics", "create", "-t", "a b"], 5, "illegal characters"),
        (["topics", "create", "-t", "TBW102"], 5, "conflict with system topic"),
        (["topics", "create", "-t", "New", "--attributes", "+message.type=NONSENSE"], 5, "value is not in set"),
        (["topics", "change", "-t", "Absent", "--perm", "R"], 1, "config/topics.json has no Absent"),
        (["topics", "change", "-t", "Events"], 2, "name at least one setting"),
        (["topics", "create", "-t", "New", "--queues", "10001"], 2, "10001"),
        (["topics", "create", "-t", "New", "--queues", "4", "--read-queues", "3"], 2, "--queues is both numbers"),
        (["topics", "create", "-t", "New", "--broker", "a"], 2, "--cluster and --broker go with -n"),
        (["groups", "delete", "-g", "Absent"], 1, "config/subscriptionGroup.json has no Absent"),
        (["groups", "delete", "-g", "g-orders", "--offsets"], 2, "--offsets goes with -n"),
    ],
)
def test_refused(golden_store: GoldenStore, arguments: list[str], code: int, words: str) -> None:
    store = golden_store("broker-real")
    state = tree_state(store)
    ended = run(*arguments, "-s", store)
    assert (ended.code, words in ended.err) == (code, True), ended.err
    assert tree_state(store) == state


def test_what_is_no_action_is_refused_and_a_listing_stays_one() -> None:
    ended = run("topics", "creat")
    assert (ended.code, "Did you mean 'create'?" in ended.err) == (2, True)
    assert "Missing option '-n'" in run("topics").err
    assert run("topics", "-n", "127.0.0.1:1").code == 3
    assert "topics create" in run("help", "topics").out
    assert "-n changes brokers that run" in run("groups", "delete", "-n", "h:1", "-s", "x", "-g", "g").err


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of one broker, with which another one has registered."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        serving_here(folder / "a", CONFIG, {}) as one,
        serving_here(folder / "b", CONFIG, {}, name="broker-b", register_at=one.namesrv),
    ):
        _wait(lambda: len(run("cluster", "-n", one.namesrv, "--json").objects) == 2)
        yield one.namesrv


def _wait(condition: Any) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _routes(namesrv: str, topic: str) -> list[tuple[str, int, int, str]]:
    rows = run("topics", "-n", namesrv, "-t", topic, "--json").objects
    return [(row["broker"], row["read_queues"], row["write_queues"], row["perm"]) for row in rows]


def _ordered(namesrv: str, topic: str) -> str:
    client = Client(namesrv)
    key = {"namespace": ORDER_TOPIC_CONFIG, "key": topic}
    answer = client.ask_name_server(*with_header(RequestCode.GET_KV_CONFIG, key), allowed=(22,))
    client.close()
    return answer.fields.get("value", "")


def test_a_topic_of_all_brokers(namesrv: str) -> None:
    planned = run("topics", "create", "-n", namesrv, "-t", "Live", "--queues", "3", "--dry-run", "--json").objects
    assert [(row["broker"], row["before"], row["state"]) for row in planned] == [
        ("broker-a", None, "planned"),
        ("broker-b", None, "planned"),
    ]
    assert run("topics", "change", "-n", namesrv, "-t", "Live", "--perm", "R").code == 1
    made = run("topics", "create", "-n", namesrv, "-t", "Live", "--queues", "3", "--order")
    assert (made.code, "topic Live created on 2 of 2 brokers" in made.err) == (0, True)
    assert _ordered(namesrv, "Live") == "broker-a:3;broker-b:3"
    _wait(lambda: _routes(namesrv, "Live") == [("broker-a", 3, 3, "RW-"), ("broker-b", 3, 3, "RW-")])
    again = run("topics", "create", "-n", namesrv, "-t", "Live")
    assert (again.code, "the broker broker-a has Live already" in again.err) == (5, True)

    on_b = ("topics", "change", "-n", namesrv, "-t", "Live", "--broker", "broker-b")
    assert "--no-order is for all brokers" in run(*on_b, "--no-order").err
    assert run(*on_b, "--perm", "R", "--write-queues", "2").code == 0
    assert _ordered(namesrv, "Live") == "broker-a:3;broker-b:2"
    _wait(lambda: _routes(namesrv, "Live") == [("broker-a", 3, 3, "RW-"), ("broker-b", 3, 2, "R--")])
    assert [row["state"] for row in run(*on_b, "--perm", "R", "--json").objects] == ["unchanged"]
    assert run("topics", "change", "-n", namesrv, "-t", "Live", "--no-order").code == 0
    assert _ordered(namesrv, "Live") == ""

    asked = run("topics", "delete", "-n", namesrv, "-t", "Live")
    assert (asked.code, "deletes the topic Live on 2 brokers" in asked.err) == (5, True)
    assert run("topics", "delete", "-n", namesrv, "-t", "Live", "--yes").code == 0
    _wait(lambda: _routes(namesrv, "Live") == [])
    assert _ordered(namesrv, "Live") == ""


def test_what_did_not_reach_all_brokers_is_completed_by_doing_it_again(namesrv: str) -> None:
    on_a = ("-n", namesrv, "-t", "Half", "--broker", "broker-a")
    assert run("topics", "create", *on_a, "--queues", "2").code == 0
    again = run("topics", "create", "-n", namesrv, "-t", "Half", "--queues", "2", "--json").objects
    assert [(row["state"], row["detail"]) for row in again] == [("unchanged", "is there already"), ("done", "")]
    _wait(lambda: len(_routes(namesrv, "Half")) == 2)
    assert run("topics", "delete", *on_a, "--yes").code == 0
    assert len(_routes(namesrv, "Half")) >= 1
    rest = run("topics", "delete", "-n", namesrv, "-t", "Half", "--yes", "--json").objects
    assert [(row["state"], row["detail"]) for row in rest] == [("unchanged", "is not there"), ("done", "")]
    assert _routes(namesrv, "Half") == []
    assert run("topics", "delete", "-n", namesrv, "-t", "Half", "--yes").code == 1
    # broker by broker: with the last one the name server forgets the topic
    assert run("topics", "create", "-n", namesrv, "-t", "Half").code == 0
    _wait(lambda: len(_routes(namesrv, "Half")) == 2)
    for broker in ("broker-a", "broker-b"):
        assert run("topics", "delete", "-n", namesrv, "-t", "Half", "--broker", broker, "--yes").code == 0
    assert _routes(namesrv, "Half") == []


def test_what_a_broker_refuses_is_its_own_sentence(namesrv: str) -> None:
    refused = ("--attributes", "+message.type=PRIORITY", "--order", "--json")
    ended = run("topics", "create", "-n", namesrv, "-t", "Mixed", *refused)
    assert _ordered(namesrv, "Mixed") == ""
    assert ended.code == 3
    assert {row["state"] for row in ended.objects} == {"failed"}
    assert all("value is not in set" in row["detail"] for row in ended.objects)
    assert run("topics", "create", "-n", namesrv, "-t", "M", "--broker", "nowhere").code == 1
    assert run("topics", "create", "-n", namesrv, "-t", "M", "--cluster", "nowhere").code == 1


def test_a_group_of_all_brokers(namesrv: str) -> None:
    assert run("groups", "create", "-n", namesrv, "-g", "billing", "--retry-max", "3").code == 0
    rows = run("groups", "change", "-n", namesrv, "-g", "billing", "--no-consume", "--json").objects
    assert [(row["before"]["consumeEnable"], row["after"]["consumeEnable"], row["state"]) for row in rows] == [
        (True, False, "done"),
        (True, False, "done"),
    ]
    assert all(row["before"]["retryMaxTimes"] == 3 for row in rows)
    assert run("groups", "delete", "-n", namesrv, "-g", "billing", "--offsets", "--yes").code == 0
    assert run("groups", "delete", "-n", namesrv, "-g", "billing", "--yes").code == 1


@pytest.mark.parametrize(("version", "longest"), [("4.9.8", 255), ("5.3.3", 255), ("5.5.0", 120)])
def test_the_names_of_groups_that_a_version_takes(golden_store: GoldenStore, version: str, longest: int) -> None:
    store = golden_store("broker-real")
    made = ("groups", "create", "-s", store, "--as", version, "--dry-run", "-g")
    assert run(*made, "g" * longest).code == 0
    code, _, err = run(*made, "g" * (longest + 1))
    assert (code, f"longer than group max length{':' if longest == 120 else ''} {longest}." in err) == (5, True)


def test_the_retry_topics_that_a_version_takes(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    topic = "%RETRY%" + "g" * 121
    made = ("topics", "create", "-s", store, "-t", topic, "--dry-run")
    assert (run(*made, "--as", "5.5.0").code, run(*made).code) == (0, 5)


def test_what_is_there_is_changed_by_the_version_and_deleted_by_any_name(golden_store: GoldenStore) -> None:
    """Brokers validate names where they update (TopicValidator), and look at none that they delete."""
    store = golden_store("broker-real")
    group, topic = "g" * 121, "%DLQ%" + "g" * 123
    assert run("groups", "create", "-s", store, "-g", group).code == 0
    assert run("topics", "create", "-s", store, "-t", topic, "--as", "5.5.0").code == 0
    for kind, name, setting, version in (
        ("groups", group, ("--retry-max", "3"), "5.5.0"),
        ("topics", topic, ("--perm", "R"), "5.3.3"),
    ):
        changing = (kind, "change", "-s", store, f"-{kind[0]}", name, *setting, "--as")
        code, _, err = run(*changing, version)
        assert (code, "longer than" in err) == (5, True)
        assert run(*changing, {"5.5.0": "5.3.3", "5.3.3": "5.5.0"}[version]).code == 0
        assert run(kind, "delete", "-s", store, f"-{kind[0]}", name).code == 0
