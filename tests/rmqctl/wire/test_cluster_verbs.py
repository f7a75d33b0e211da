"""`rmqctl topics`, `groups -n` and `cluster` through the name server: two brokers, and one that is gone."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.broker.settings import Counts
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.store.config.config import StoreConfig
from tests.network.callers import with_header
from tests.network.serving import serving, serving_here
from tests.rmqctl.looking import run

LIMIT = 60
CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of one broker, with which another one has registered."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        serving_here(folder / "a", CONFIG, {}) as one,
        serving_here(folder / "b", CONFIG, {}, name="broker-b", register_at=one.namesrv) as two,
    ):
        client = Client(one.namesrv)
        for address in (one.address, two.address):
            fields = {"topic": "Both", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
            client.ask(address, *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
        _wait(lambda: len(run("topics", "-n", one.namesrv, "-t", "Both", "--json").objects) == 2)
        client.close()
        with Producer(one.namesrv) as producer:
            for number in range(8):
                producer.send(Message("Both", b"%d" % number))
        yield one.namesrv


def _wait(condition: object) -> None:
    end = time.monotonic() + LIMIT
    while not condition() and time.monotonic() < end:  # type: ignore[operator]  # a function without arguments
        time.sleep(0.1)


def test_topics_are_those_of_all_brokers(namesrv: str) -> None:
    rows = run("topics", "-n", namesrv, "-t", "Both", "--json").objects
    assert [(row["broker"], row["read_queues"], row["write_queues"], row["perm"]) for row in rows] == [
        ("broker-a", 2, 2, "RW-"),
        ("broker-b", 2, 2, "RW-"),
    ]
    code, out, _ = run("topics", "-n", namesrv)
    assert (code, "TBW102" in out, "RWX" in out) == (0, True, True)
    assert run("topics", "-n", namesrv, "-t", "Nowhere").code == 1


@contextlib.contextmanager
def _consuming(namesrv: str, group: str) -> Iterator[Consumer]:
    """A member of a group that has consumed the 8 messages."""
    with Consumer(namesrv, group, "Both", begin="first") as consumer:
        got, end = 0, time.monotonic() + LIMIT
        while got < 8 and time.monotonic() < end:
            got += len(consumer.poll(1))
        consumer.commit()
        # the other broker tells the name server of the group's retry topic soon
        _wait(lambda: len(run("groups", "-n", namesrv, "-g", group, "--json").objects) == 4)
        yield consumer


def test_groups_are_summed_over_brokers_with_their_members(namesrv: str) -> None:
    with _consuming(namesrv, "billing") as consumer:
        rows = run("groups", "-n", namesrv, "-g", "billing", "--json").objects
        assert [(row["broker"], row["queue_id"]) for row in rows] == [
            (broker, queue) for broker in ("broker-a", "broker-b") for queue in (0, 1)
        ]
        assert {(row["offset"], row["max_offset"], row["lag"], row["state"]) for row in rows} == {
            (2, 2, 0, "caught-up")
        }
        assert {(row["clients"], *row["client_ids"]) for row in rows} == {(1, consumer.client_id)}
    with Producer(namesrv) as producer:
        producer.send(Message("Both", b"one more"))

    def seen() -> tuple[int, set[int], list[str]]:
        rows = run("groups", "-n", namesrv, "-t", "Both", "--json").objects
        states = sorted({row["state"] for row in rows})
        return sum(row["lag"] for row in rows), {row["clients"] for row in rows}, states

    # what was stored is in its queue a moment later
    wanted = (1, {0}, ["behind", "caught-up"])
    _wait(lambda: seen() == wanted)
    assert seen() == wanted
    assert run("groups", "-n", namesrv, "-g", "nobody").code == 1
    # a group that never consumed is known all the same
    with Consumer(namesrv, "idle", "Both", commit=False) as consumer:
        consumer.poll(0)
    (row,) = run("groups", "-n", namesrv, "-g", "idle", "--json").objects
    assert (row["state"], row["offset"], "no broker has an offset of it" in row["detail"]) == ("unknown", None, True)


def test_brokers_with_their_state(namesrv: str) -> None:
    rows = run("cluster", "-n", namesrv, "--json").objects
    assert [(row["cluster"], row["broker"], row["broker_id"], row["version"]) for row in rows] == [
        ("DefaultCluster", "broker-a", 0, "V5_3_3"),
        ("DefaultCluster", "broker-b", 0, "V5_3_3"),
    ]
    # a broker has no rate before its first sample
    assert all(0 < row["log_disk"] <= 1 and (row["in_tps"] or 0) >= 0 for row in rows)
    assert run("cluster", "-n", namesrv).code == 0


def test_the_rate_of_a_broker_of_4_9_is_shown(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spells the key with one r."""
    monkeypatch.setattr(Counts, "rates", lambda _: {"putTps": "1.5 1.0", "getTransferedTps": "2.5 2.0"})
    rows = run("cluster", "-n", namesrv, "--json").objects
    assert [(row["in_tps"], row["out_tps"]) for row in rows] == [(1.5, 2.5)] * 2


def test_a_broker_that_is_gone_is_named_once_and_the_rest_is_shown(namesrv: str) -> None:
    with _consuming(namesrv, "stays"):
        pass
    client = Client(namesrv)
    topics = {name: {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in ("Gone", "%RETRY%stays")}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}}).encode()
    gone = {"clusterName": "DefaultCluster", "brokerName": "gone", "brokerId": 0, "brokerAddr": "127.0.0.1:1"}
    client.ask(namesrv, *with_header(RequestCode.REGISTER_BROKER, gone), body)
    try:
        code, out, err = run("cluster", "-n", namesrv, "--json")
        details = [json.loads(line)["detail"] for line in out.splitlines()]
        assert (code, details[:2], err.count("127.0.0.1:1 cannot be reached")) == (3, ["", ""], 1)
        assert "cannot be reached" in details[2]
        code, out, err = run("groups", "-n", namesrv, "--json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert (code, err.count("127.0.0.1:1 cannot be reached")) == (3, 1)
        assert sum(row["group"] == "stays" and row["lag"] is not None for row in rows) == 4
        # whoever cannot be asked may have members
        assert {row["clients"] for row in rows if row["group"] == "stays"} == {None}
        assert [row["broker"] for row in run("topics", "-n", namesrv, "-t", "Gone", "--json").objects] == ["gone"]
    finally:
        client.ask(namesrv, *with_header(RequestCode.UNREGISTER_BROKER, gone))
        client.close()


def test_what_goes_wrong() -> None:
    for verb in ("topics", "groups", "cluster"):
        code, out, err = run(verb, "-n", "127.0.0.1:1")
        assert (code, out, err.count("127.0.0.1:1 cannot be reached")) == (3, "", 1), verb
    assert run("groups", "-n", "127.0.0.1:1", "-s", Path("/nowhere"))[0] == 2


def test_a_name_server_that_is_not_there_is_told_and_harms_nobody(tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--writable", "--create", "--register", "127.0.0.1:1") as served:
        with Producer(served.namesrv) as producer:
            assert producer.send(Message("T", b"x")).status == "SEND_OK"
        # nor does this one speak TLS
        code, out, err = run("topics", "-n", served.namesrv, "--tls", "--json")
        assert (code, out, err.count(f"{served.namesrv} does not speak TLS as it should")) == (3, "", 1)
        assert served.end() == 0
    assert served.errors.count("not registered at name server 127.0.0.1:1: 127.0.0.1:1 cannot be reached") == 1


def test_a_broker_that_ends_leaves_the_name_server(namesrv: str, tmp_path: Path) -> None:
    with serving_here(tmp_path / "store", CONFIG, {}, name="broker-c", register_at=namesrv):
        _wait(lambda: len(run("cluster", "-n", namesrv, "--json").objects) == 3)
    assert [row["broker"] for row in run("cluster", "-n", namesrv, "--json").objects] == ["broker-a", "broker-b"]
