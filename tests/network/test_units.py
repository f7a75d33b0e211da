"""Namespaces in addresses of name servers, and units of producers and consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.network.clients.channel import Answers, Channel
from rmqctl.network.clients.client import Client, name_server_addresses, namespace_of
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.settings import ProducerSettings, settings_from
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus
from rmqctl.network.remoting.codec import RequestCode, parse_body
from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import with_header

INSTANCE = "MQ_INST_17_Shop"


@pytest.mark.parametrize(
    ("namesrv", "addresses", "namespace"),
    [
        ("a:1;b:2", ["a:1", "b:2"], ""),
        ("http://a:1", ["a:1"], ""),
        (" http://a:1 ", ["a:1"], ""),
        (f"http://{INSTANCE}.a.org:80", [f"{INSTANCE}.a.org:80"], INSTANCE),
        (f"https://{INSTANCE}.a.org:80", [f"https://{INSTANCE}.a.org:80"], INSTANCE),
        (f"{INSTANCE}.a.org:80", [f"{INSTANCE}.a.org:80"], INSTANCE),
        ("http://MQ_INST_17.a.org:80", ["MQ_INST_17.a.org:80"], ""),
        ("http://x.MQ_INST_17_Shop.a.org:80", ["x.MQ_INST_17_Shop.a.org:80"], ""),
        (f"http://{INSTANCE}:80", [f"{INSTANCE}:80"], ""),
    ],
)
def test_addresses_of_name_servers(namesrv: str, addresses: list[str], namespace: str) -> None:
    assert (name_server_addresses(namesrv), namespace_of(namesrv)) == (addresses, namespace)


class Cluster:
    """A broker in this process, whose name server has two addresses; `topics`: what it has."""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        self.namesrv = f"http://{INSTANCE}.shop.org:9876"

    def dial(self, address: str, answers: Answers) -> Channel:
        return self.local.dial(self.local.namesrv if address == f"{INSTANCE}.shop.org:9876" else address, answers)

    def ask(self, code: int, **fields: Any) -> dict[str, Any]:
        client = Client(self.local.namesrv, self.local.dial)
        try:
            return parse_body(client.ask_name_server(*with_header(code, fields)).body)
        finally:
            client.close()

    def flag_of(self, topic: str) -> int:
        (found,) = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)["queueDatas"]
        return int(found["topicSysFlag"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    with MessageStore.open(tmp_path / "store", "rw", config, create=True) as store, LocalBroker(store) as local:
        yield Cluster(local)


def until(found: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not found():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_namespace_of_an_address_is_that_of_topics_and_groups(cluster: Cluster) -> None:
    with Producer(cluster.namesrv, "pays", cluster.dial) as producer:
        producer.send(Message("Orders", b"one"))
        assert producer.group == f"{INSTANCE}%pays"
        assert producer.queues("Orders")[0].topic == "Orders"
    (topic,) = (
        one for one in cluster.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"] if "Orders" in one
    )
    assert topic == f"{INSTANCE}%Orders"
    with Consumer(cluster.namesrv, "reads", "Orders", begin="first", dial=cluster.dial) as consumer:
        (message,) = consumer.poll(10)
        assert (consumer.group, message.topic) == (f"{INSTANCE}%reads", "Orders")
    seen: list[str] = []

    def on_messages(messages: Any, context: object) -> ConsumeStatus:
        seen.extend(one.topic for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = MemberOptions(begin="first", dial=cluster.dial)
    with PushConsumer(cluster.namesrv, "pushed", {"Orders": "*"}, on_messages, options=options):
        until(lambda: seen)
    assert seen == ["Orders"]
    # one that is set comes first
    settings = ProducerSettings(namespace="own")
    assert Producer(cluster.namesrv, "pays", cluster.dial, settings).group == "own%pays"


def test_units_are_part_of_client_ids_and_mark_topics(cluster: Cluster, tmp_path: Path) -> None:
    at = cluster.local.namesrv
    settings = settings_from({"unitMode": "true", "unitName": "east"})
    with Producer(at, "pays", cluster.local.dial, settings) as producer:
        producer.send(Message("Orders", b"one"))
        producer.send(Message("%RETRY%sent", b"one"))
    with Producer(at, "pays", cluster.local.dial) as producer:
        producer.send(Message("Plain", b"one"))
    options: dict[str, Any] = {"dial": cluster.local.dial, "unit_name": "east", "unit_mode": True}
    with Consumer(at, "polls", "Orders", begin="first", **options) as consumer:
        assert consumer.client_id.endswith("@east")
        assert consumer.poll(10)
    with PushConsumer(
        at, "pushed", {"Orders": "*"}, lambda *_: ConsumeStatus.CONSUME_SUCCESS, options=MemberOptions(**options)
    ) as pushed:
        assert pushed.client_id.endswith("@east")
        assert pushed.client_id.count("@") == 2
    told = MemberOptions(**options, broadcast=True, offsets_directory=tmp_path / "offsets", instance="one")
    told_all = PushConsumer(at, "told", {"Orders": "*"}, lambda *_: ConsumeStatus.CONSUME_SUCCESS, options=told)
    assert told_all.client_id.endswith("@one@east")
    flags = {
        topic: cluster.flag_of(topic) for topic in ("Orders", "Plain", "%RETRY%sent", "%RETRY%polls", "%RETRY%pushed")
    }
    assert flags == {"Orders": 1, "Plain": 0, "%RETRY%sent": 2, "%RETRY%polls": 2, "%RETRY%pushed": 2}
    retries = ["%RETRY%polls", "%RETRY%pushed", "%RETRY%sent"]
    assert cluster.ask(RequestCode.GET_UNIT_TOPIC_LIST)["topicList"] == ["Orders"]
    assert cluster.ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)["topicList"] == retries
    assert cluster.ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)["topicList"] == retries


@pytest.mark.parametrize(("version", "longest"), [("5.3.3", 255), ("5.5.0", 120)])
def test_clients_refuse_groups_that_are_too_long_for_their_version(
    cluster: Cluster, version: str, longest: int
) -> None:
    """Validators#checkGroup of each version."""
    group = "g" * (longest + 1)
    said = (
        f"the specified group[{group}] is longer than group max length: 120."
        if version == "5.5.0"
        else ("the specified group is longer than group max length 255.")
    )
    at, dial = cluster.local.namesrv, cluster.local.dial
    with pytest.raises(UsageError) as refused:
        Producer(at, group, dial, settings_from({"clientVersion": version})).start()
    assert refused.value.message == said
    with pytest.raises(UsageError) as refused:
        Consumer(at, group, "Orders", dial=dial, client_version=version)
    assert refused.value.message == said
    options = MemberOptions(dial=dial, client_version=version)
    with pytest.raises(UsageError) as refused:
        PushConsumer(at, group, {"Orders": "*"}, lambda *_: ConsumeStatus.CONSUME_SUCCESS, options=options)
    assert refused.value.message == said
    with Producer(at, group[:-1], dial, settings_from({"clientVersion": version})) as producer:
        producer.send(Message("Orders", b"x"))
    with pytest.raises(UsageError, match="clientVersion is one of"):
        settings_from({"clientVersion": "5.4"})
