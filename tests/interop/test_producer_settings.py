"""Settings of clients at real brokers: compression, the topic that is copied, another broker, namespaces, units."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode, parse_body
from tests.interop.brokers import java, mqadmin, real_broker, rmqctl
from tests.interop.members import wait_for
from tests.network.callers import with_header

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
# of 4.x: a master without its slave says so of each message
OLD = "4.9.7"
SETTINGS = {"timerWheelEnable": "false"}


def test_settings_do_at_a_broker_what_they_say(tmp_path: Path) -> None:
    with real_broker(VERSION, tmp_path / "real", tmp_path / "store", SETTINGS) as real:
        at = ("-n", real.namesrv)
        mqadmin(VERSION, tmp_path, real.namesrv, f"updateTopic -b {real.broker} -t Template -r 3 -w 3 -p 7")
        wait_for(lambda: rmqctl("topics", *at, "-t", "Template", code=None) != [])

        # compressLevel and compressType: Java unpacks each
        words = random.Random(7)
        bodies = ["".join(words.choices("abcdefgh ", k=20_000)) for _ in range(6)]
        sizes: dict[tuple[str, int], int] = {}
        kinds = [(kind, level) for kind in ("ZLIB", "LZ4", "ZSTD") for level in (1, 9)]
        for (kind, level), body in zip(kinds, bodies, strict=True):
            options = ("--setting", f"compressType={kind}", "--setting", f"compressLevel={level}")
            rmqctl("produce", *at, "-t", "Small", "--body", body, *options)
        lines = [
            line.split("\t")
            for line in java(VERSION, tmp_path, "Consume", real.namesrv, "lite", "Small", "r", "*", "6")
        ]
        got = {line[4] for line in lines if line[0] == "message"}
        assert got == {hashlib.sha256(body.encode()).hexdigest() for body in bodies}
        for row in rmqctl("consume", *at, "-t", "Small"):
            kind, level = kinds[bodies.index(row["body"])]
            assert row["compression"] == kind.lower()
            sizes[kind, level] = row["size"]
        assert sizes["ZLIB", 9] < sizes["ZLIB", 1] < 20_000

        # createTopicKey: the new topic is a copy, with as many queues as both have
        for topic, count in (("Copied", 8), ("Narrow", 2)):
            options = ("--setting", "createTopicKey=Template", "--setting", f"defaultTopicQueueNums={count}")
            rmqctl("produce", *at, "-t", topic, "--body", "x", *options)
            wait_for(lambda topic=topic: rmqctl("topics", *at, "-t", topic, code=None) != [])  # type: ignore[misc]
            (row,) = rmqctl("topics", *at, "-t", topic)
            assert (row["write_queues"], row["read_queues"]) == (min(count, 3), min(count, 3))

        # namespace: brokers and Java know the topic by its whole name
        rmqctl("produce", *at, "-t", "Named", "--body", "mine", "--namespace", "space")
        (row,) = rmqctl("consume", *at, "-t", "Named", "-g", "reads", "--namespace", "space")
        assert (row["topic"], row["body"]) == ("Named", "mine")
        lines = [
            line.split("\t")
            for line in java(VERSION, tmp_path, "Consume", real.namesrv, "lite", "space%Named", "space%java", "*", "1")
        ]
        assert [line[4] for line in lines if line[0] == "message"] == [hashlib.sha256(b"mine").hexdigest()]

        # unitName: part of the id by which brokers know the producer
        settings = ProducerSettings(instance_name="one", unit_name="unit")
        with Producer(real.namesrv, "united", settings=settings) as producer:
            producer.send(Message("Named", b"x"))
            (known,) = mqadmin(VERSION, tmp_path, real.namesrv, "producerConnection -g united -t Named")
        (line,) = [one for one in known if one.startswith("0001")]
        assert line.split()[1].endswith("@one@unit")


@pytest.mark.parametrize(
    ("version", "settings", "status"),
    [
        (OLD, {"brokerRole": "SYNC_MASTER"}, "SLAVE_NOT_AVAILABLE"),
        # 5.x waits for a slave, and never says that there is none
        (VERSION, {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "200"}, "FLUSH_SLAVE_TIMEOUT"),
        (VERSION, {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "-1"}, "FLUSH_DISK_TIMEOUT"),
    ],
)
def test_a_message_that_is_not_stored_safely_goes_to_another_broker(
    tmp_path: Path, version: str, settings: dict[str, str], status: str
) -> None:
    with real_broker(version, tmp_path / "a", tmp_path / "store-a", SETTINGS | settings) as real:
        other = SETTINGS | {"brokerName": "broker-b", "namesrvAddr": real.namesrv}
        with real_broker(version, tmp_path / "b", tmp_path / "store-b", other):
            at = ("-n", real.namesrv)
            wait_for(lambda: len(rmqctl("cluster", *at, code=None)) == 2)
            mqadmin(version, tmp_path, real.namesrv, "updateTopic -c DefaultCluster -t Safe -r 2 -w 2")
            wait_for(lambda: len(rmqctl("topics", *at, "-t", "Safe", code=None)) == 2)
            found: dict[bool, set[tuple[str, str]]] = {}
            not_waited: set[tuple[str, str]] = set()
            for is_on in (False, True):
                producing = ProducerSettings(retry_another_broker_when_not_store_ok=is_on)
                with Producer(real.namesrv, "safe", settings=producing) as producer:
                    results = [producer.send(Message("Safe", b"%d" % number)) for number in range(8)]
                    soon = producer.send_soon(Message("Safe", b"soon")).result(30)
                    results.append(producer.send_batch([Message("Safe", b"one"), Message("Safe", b"two")]))
                found[is_on] = {(one.queue.broker_name, one.status) for one in results}
                # as Java's, one that is sent asynchronously is not tried again
                not_waited.add((soon.queue.broker_name, soon.status))
            # what is not stored safely is stored all the same: tried again, it is there twice
            with Consumer(real.namesrv, "all", "Safe", begin="first") as consumer:
                bodies: list[bytes] = []
                while more := consumer.poll(5):
                    bodies += [one.body for one in more]
    # a flush may be faster than its time-out
    assert {("broker-a", status), ("broker-b", "SEND_OK")} <= found[False]
    assert found[False] | not_waited <= {("broker-a", status), ("broker-a", "SEND_OK"), ("broker-b", "SEND_OK")}
    assert ("broker-a", status) not in found[True]
    assert ("broker-b", "SEND_OK") in found[True]
    assert set(bodies) == {b"%d" % number for number in range(8)} | {b"soon", b"one", b"two"}
    assert len(bodies) > 22


def test_the_address_of_a_name_server_has_a_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = "MQ_INST_17_Shop.shop.org"
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 {host}\n")
    plain = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda name, *more, **options: plain("127.0.0.1" if name == host else name, *more, **options),
    )
    with real_broker(VERSION, tmp_path / "real", tmp_path / "store", SETTINGS) as real:
        at = f"http://{host}:{real.namesrv.rpartition(':')[2]}"
        with Producer(at, "pays") as producer:
            producer.send(Message("Orders", b"mine"))
        known = rmqctl("topics", "-n", f"http://{real.namesrv}")
        assert [row["topic"] for row in known if "Orders" in row["topic"]] == ["MQ_INST_17_Shop%Orders"]
        with Consumer(at, "reads", "Orders", begin="first") as consumer:
            (message,) = consumer.poll(20)
        assert (message.topic, message.body) == ("Orders", b"mine")
        # a Java client of the same address has the same names, retries included
        calls = ("lite", "Orders", "java", "*", "1")
        lines = java(VERSION, tmp_path, "Consume", at, *calls, jdk_net_hosts_file=str(hosts))
        got = [line.split("\t") for line in lines if line.startswith("message")]
        assert [one[4] for one in got] == [hashlib.sha256(b"mine").hexdigest()]
        groups = {row["group"] for row in rmqctl("groups", "-n", real.namesrv)}
        assert {"MQ_INST_17_Shop%reads", "MQ_INST_17_Shop%java"} <= groups


def test_units_mark_topics_as_they_do_at_ours(tmp_path: Path) -> None:
    with real_broker(VERSION, tmp_path / "real", tmp_path / "store", SETTINGS) as real:
        settings = ProducerSettings(unit_mode=True, unit_name="east")
        with Producer(real.namesrv, "pays", settings=settings) as producer:
            producer.send(Message("Orders", b"one"))
            producer.send(Message("%RETRY%sent", b"one"))
        with Producer(real.namesrv, "pays") as producer:
            producer.send(Message("Plain", b"one"))
        with (
            contextlib.closing(Client(real.namesrv)) as client,
            Consumer(real.namesrv, "polls", "Orders", begin="first", unit_name="east", unit_mode=True) as consumer,
        ):
            assert consumer.poll(20)
            (known,) = mqadmin(VERSION, tmp_path, real.namesrv, "consumerConnection -g polls")
            assert any("@east" in line for line in known)

            def flags() -> dict[str, Any]:
                found = {}
                for topic in ("Orders", "Plain", "%RETRY%sent", "%RETRY%polls"):
                    answer = client.ask_name_server(
                        *with_header(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}),
                    )
                    found[topic] = parse_body(answer.body)["queueDatas"][0]["topicSysFlag"]
                return found

            assert flags() == {"Orders": 1, "Plain": 0, "%RETRY%sent": 2, "%RETRY%polls": 2}
            lists = [
                sorted(parse_body(client.ask_name_server(code).body)["topicList"])
                for code in (
                    RequestCode.GET_UNIT_TOPIC_LIST,
                    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                )
            ]
            assert lists == [["Orders"], ["%RETRY%polls", "%RETRY%sent"], ["%RETRY%polls", "%RETRY%sent"]]


def test_names_of_groups_and_topics_are_as_long_as_at_ours(tmp_path: Path) -> None:
    """The real broker's words are those that tests/network/test_of_versions.py expects of `serve --as 5.5.0`."""
    with real_broker("5.5.0", tmp_path / "real", tmp_path / "store", {}) as real:
        client = Client(real.namesrv)
        with contextlib.closing(client):
            for name, remark in (
                ("g" * 120, None),
                ("g" * 121, "The specified group: GROUP, is longer than group max length: 120"),
                ("a b", "The specified group: GROUP, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
            ):
                command = RemotingCommand(
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": name}).encode()
                )
                answer = client.connection(real.broker).request(command, 10)
                assert (answer.code, answer.remark) == (29, remark.replace("GROUP", name)) if remark else (0, None)
            for length, code in ((120, 0), (121, 26)):
                fields = {"group": "h" * length}
                answer = client.ask(
                    real.broker,
                    *with_header(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, fields),
                    allowed=(26,),
                )
                assert answer.code == code
            topic = "t" * 128
            fields = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            answer = client.ask(
                real.broker,
                *with_header(RequestCode.UPDATE_AND_CREATE_TOPIC, fields),
                allowed=(29,),
            )
            assert answer.remark == f"The specified topic: {topic}, is longer than topic max length: 127"
