"""SQL92 subscriptions of our clients, and what a broker keeps of them in config/consumerFilter.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.formats.checksums import murmur3
from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.network.broker.members import BloomFilter, ConsumerFilters, Subscription
from rmqctl.network.broker.settings import BrokerSettings
from rmqctl.network.clients.client import BrokerError
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.membership import LiveGroup
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus
from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.filter import BySql
from rmqctl.store.store_files import StoreFiles

WANTED = BySql("amount > 5 AND region IN ('cn', 'us')")
DAY_MS = 86_400_000


def subscription(expression: str, version: int, topic: str = "T", kind: str = "SQL92") -> Subscription:
    return Subscription(topic, expression, kind, version, {})


def opened(store: Path, now: int = 0) -> ConsumerFilters:
    with StoreFiles(store) as files:
        return ConsumerFilters(files, BrokerSettings(), print, now)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with MessageStore.open(path, "rw", StoreConfig(mapped_file_size_commit_log=1 << 20), create=True):
        return path


def test_bits_are_those_of_java() -> None:
    """What a 5.3.3 wrote for this group, with 64 consumers expected; and Guava's hash of texts of every length."""
    assert BloomFilter.of(BrokerSettings()) == BloomFilter(112, 3)
    filter_of_64 = BloomFilter.of(BrokerSettings(expect_consumer_num_use_filter=64))
    assert filter_of_64.bean_of("G1", "TopicA") == {"bitNum": 216, "bitPos": [63, 175, 71]}
    assert murmur3("abcdefghijklmnopqrstu键vwxyzabcdefghijklm".encode()) == 0x13809039E88C539


def test_members_get_what_their_expression_takes_and_the_broker_keeps_it(store: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    settings = {"enablePropertyFilter": "true"}
    with MessageStore.open(store, "rw", config) as opened, LocalBroker(opened, properties=settings) as local:
        with Producer(local.namesrv, dial=local.dial) as producer:
            for amount, region in ((7, "cn"), (5, "cn"), (9, "de"), (8, "us")):
                properties = {"amount": f"{amount}", "region": region}
                producer.send(Message("T", f"{amount}{region}".encode(), properties=properties))
        opened.wait_for_dispatch()
        with Consumer(local.namesrv, "pull", "T", WANTED, begin="first", dial=local.dial) as consumer:
            found = sorted(one.body for one in consumer.messages(to_the_end=True))
        taken: list[bytes] = []

        def take(messages: object, context: object) -> ConsumeStatus:
            taken.extend(one.body for one in messages)  # type: ignore[attr-defined]
            return ConsumeStatus.CONSUME_SUCCESS

        options = MemberOptions(begin="first", dial=local.dial)
        with PushConsumer(local.namesrv, "push", {"T": WANTED}, take, options=options) as member:
            member.wait_to_the_end()
    assert found == sorted(taken) == [b"7cn", b"8us"]
    kept = json.loads((store / "config/consumerFilter.json").read_text("utf-8"))["filterDataByTopic"]
    assert (list(kept), kept["T"]["topic"], sorted(kept["T"]["groupFilterData"])) == (["T"], "T", ["pull", "push"])
    row = kept["T"]["groupFilterData"]["push"]
    assert (row["expression"], row["expressionType"], row["dead"]) == (WANTED, "SQL92", True)
    assert row["bloomFilterData"] == BloomFilter(112, 3).bean_of("push", "T")
    assert row["deadTime"] >= row["bornTime"] > 0


def test_a_broker_that_filters_by_tags_alone_refuses_at_once(store: Path) -> None:
    with MessageStore.open(store, "rw") as opened, LocalBroker(opened) as local:
        with Producer(local.namesrv, dial=local.dial) as producer:
            producer.send(Message("T", b"x"))
        with (
            Consumer(local.namesrv, "g", "T", WANTED, begin="first", dial=local.dial, failing_seconds=5) as consumer,
            pytest.raises(BrokerError, match="does not support consumer to filter message by SQL92"),
        ):
            consumer.poll(5)
        with pytest.raises(UsageError):
            Consumer(local.namesrv, "g", "T", BySql("a >"), dial=local.dial)


def test_members_that_subscribe_another_expression_are_a_conflict() -> None:
    live = LiveGroup(("c",), {"T": ("SQL92", str(WANTED))}, "CLUSTERING")
    assert live.conflict({"T": WANTED}) is None
    assert live.conflict({"T": BySql("amount > 6")})
    assert live.conflict({"T": str(WANTED)})


def test_filters_live_and_die_with_their_groups(store: Path) -> None:
    """As ConsumerFilterManager has it: versions decide, a topic left out is dead, a day later it is forgotten."""
    filters = opened(store)
    filters.register("g", [subscription("a > 1", 3), subscription("*", 3, "U", "TAG")], 1000)
    filters.register("g", [subscription("a > 2", 2)], 1100)  # an older one
    first = filters.content()["filterDataByTopic"]["T"]["groupFilterData"]["g"]
    assert (first["expression"], first["clientVersion"], first["bornTime"], first["dead"]) == ("a > 1", 3, 1000, False)
    assert list(filters.content()["filterDataByTopic"]) == ["T"]
    filters.register("g", [subscription("*", 4, "U", "TAG")], 1200)
    assert filters.content()["filterDataByTopic"]["T"]["groupFilterData"]["g"]["deadTime"] == 1200
    filters.register("g", [subscription("a > 1", 4)], 1300)
    filters.unregister("g", 1400)
    assert filters.take_change(1400)
    assert not filters.take_change(1400)
    (store / "config").mkdir(exist_ok=True)
    (store / "config/consumerFilter.json").write_text(json.dumps(filters.content()), encoding="utf-8")
    loaded = opened(store, 50_000)
    loaded.register("g", [subscription("a > 1", 4)], 50_000)
    row = loaded.content()["filterDataByTopic"]["T"]["groupFilterData"]["g"]
    assert (row["dead"], row["deadTime"], row["bornTime"]) == (False, 0, 1000)
    loaded.register("g", [subscription("a >", 5)], 50_000)
    assert loaded.content() == {"filterDataByTopic": {"T": {"groupFilterData": {}, "topic": "T"}}}
    again = opened(store, 50_000)
    assert again.take_change(1400 + DAY_MS)
    assert again.content() == {"filterDataByTopic": {}}
