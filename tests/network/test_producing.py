"""A producer's rules: its states, checks, routes, retries, settings, and that brokers know it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, RemoteError, UsageError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.client import BrokerError, Client, route_of, with_namespace, without_namespace
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.routing import (
    LatencyTable,
    by_hash,
    by_machine_room,
    by_random,
    not_available_duration,
)
from rmqctl.network.clients.producing.settings import (
    ProducerSettings,
    ServiceState,
    check_batch,
    check_group,
    is_single,
    settings_from,
    split,
)
from rmqctl.network.remoting.codec import MessageQueue, RequestCode, objects, parse_body
from rmqctl.network.serving import ListeningBroker
from rmqctl.store.config.config import StoreConfig
from tests.network.callers import with_header
from tests.network.serving import serving, serving_here

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
LIMIT = 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListeningBroker]:
    with serving_here(tmp_path_factory.mktemp("served") / "store", CONFIG, {}) as ready:
        yield ready


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ListeningBroker, ListeningBroker]]:
    """Two brokers of one cluster, at the name server of the first."""
    with (
        serving_here(tmp_path / "a", CONFIG, {}) as one,
        serving_here(tmp_path / "b", CONFIG, {}, name="broker-b", register_at=one.namesrv) as other,
    ):
        wait_for_route(one.namesrv, "TBW102", 2)
        yield one, other


def wait_for_route(namesrv: str, topic: str, brokers: int) -> list[MessageQueue]:
    """Return the queues of a topic, as soon as the name server knows so many brokers of it."""
    client = Client(namesrv)
    end = time.monotonic() + LIMIT
    with contextlib.closing(client):
        while True:
            route = client.route(topic, anew=True)
            if route is not None and len({queue.broker_name for queue in route.writable}) == brokers:
                return list(route.writable)
            assert time.monotonic() < end
            time.sleep(0.05)


def consumed(served: ListeningBroker, topic: str, count: int) -> list[StoredMessage]:
    """Return the messages of a topic, as soon as there are so many: a queue has them shortly after the answer."""
    found: list[StoredMessage] = []
    end = time.monotonic() + LIMIT
    with Consumer(served.namesrv, f"reads-{topic.rpartition('%')[2]}", topic, begin="first") as consumer:
        while len(found) < count and time.monotonic() < end:
            found += consumer.poll(1)
    return found


# ---- states


def test_a_producer_sends_only_between_start_and_end(served: ListeningBroker) -> None:
    producer = Producer(served.namesrv, "states")
    message = Message("States", b"x")
    with pytest.raises(RefusedError, match="The producer service state not OK, CREATE_JUST"):
        producer.send(message)
    producer.start()
    with pytest.raises(RefusedError, match="maybe started once, RUNNING"):
        producer.start()
    assert producer.send(message).status == "SEND_OK"
    producer.close()
    producer.close()
    for send in (producer.send, producer.send_soon, producer.send_oneway):
        with pytest.raises(RefusedError, match="The producer service state not OK, SHUTDOWN_ALREADY"):
            send(message)
    with pytest.raises(RefusedError, match="maybe started once, SHUTDOWN_ALREADY"):
        producer.start()


def test_a_group_has_one_producer_in_a_process(served: ListeningBroker) -> None:
    second = Producer(served.namesrv, "only")
    with Producer(served.namesrv, "only"):
        with pytest.raises(RefusedError, match=r"The producer group\[only\] has been created before, specify another"):
            second.start()
        assert second.state is ServiceState.CREATE_JUST
        with Producer(served.namesrv, "only", settings=ProducerSettings(instance_name="other")) as other:
            assert other._client.client_id.endswith("@other")
        united = Producer(served.namesrv, "only", settings=ProducerSettings(instance_name="other", unit_name="cell-1"))
        assert united._client.client_id.endswith("@other@cell-1")
        united = Producer(served.namesrv, "only", settings=settings_from({"unitName": "cell-1"}))
        assert re.fullmatch(rf"[^@]+@{os.getpid()}#[0-9]+@cell-1", united._client.client_id)
    with second:
        assert f"@{os.getpid()}#" in second._client.client_id


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (" ", "the specified group is blank"),
        ("g" * 256, "the specified group is longer than group max length 255."),
        ("a.b", "the specified group[a.b] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("DEFAULT_PRODUCER", "producerGroup can not equal DEFAULT_PRODUCER, please specify another one."),
    ],
)
def test_groups_that_no_producer_may_have(group: str, said: str) -> None:
    producer = Producer("127.0.0.1:1", group)
    with pytest.raises(UsageError) as caught:
        producer.start()
    assert (caught.value.message, producer.state) == (said, ServiceState.START_FAILED)
    with pytest.raises(RefusedError, match="START_FAILED"):
        producer.start()
    check_group("g" * 255)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message("", b"x"), "The specified topic is blank"),
        (Message("t" * 128, b"x"), "The specified topic is longer than topic max length 127."),
        (Message("a b", b"x"), "The specified topic[a b] contains illegal characters, allowing only"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        (Message("T", b""), "the message body length is zero"),
        (Message("T", b"12345"), "the message body size over max value, MAX: 4"),
        (Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "a/b"}), "INNER_MULTI_DISPATCH a/b can not contains /"),
    ],
)
def test_a_message_is_checked_before_a_server_is_asked(message: Message, said: str) -> None:
    with Producer("127.0.0.1:1", "checks", settings=ProducerSettings(max_message_size=4)) as producer:
        for send in (producer.send, producer.send_soon, producer.send_oneway, lambda one: producer.send_batch([one])):
            with pytest.raises(UsageError) as caught:
                send(message)
            assert caught.value.message.startswith(said)


# ---- heartbeats and routes


def producers(served: ListeningBroker, group: str) -> list[str]:
    client = Client(served.namesrv)
    with contextlib.closing(client):
        answer = client.ask(
            served.address,
            *with_header(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group}),
            allowed=(1,),
        )
    return (
        [str(one["clientId"]) for one in objects(parse_body(answer.body).get("connectionSet"))] if answer.body else []
    )


def test_brokers_know_a_producer_until_it_ends(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "known", settings=ProducerSettings(heartbeat_broker_interval=100)) as producer:
        producer.send(Message("Known", b"x"))
        end = time.monotonic() + LIMIT
        while producers(served, "known") != [producer._client.client_id] and time.monotonic() < end:
            time.sleep(0.05)
        assert producers(served, "known") == [producer._client.client_id]
        before = served.broker.clients.producers("known")
        heard = max(one.heard_at for one in before.values())
        while max(one.heard_at for one in served.broker.clients.producers("known").values()) == heard:
            assert time.monotonic() < end
            time.sleep(0.05)
    assert producers(served, "known") == []


def test_an_unknown_topic_is_made_on_all_brokers(two: tuple[ListeningBroker, ListeningBroker]) -> None:
    settings = ProducerSettings(default_topic_queue_nums=3)
    with Producer(two[0].namesrv, "spreads", settings=settings) as producer:
        assert len(producer.queues("New")) == 6
        found = Counter(producer.send(Message("New", b"x")).queue.broker_name for _ in range(12))
        assert found == {"broker-a": 6, "broker-b": 6}
    made = wait_for_route(two[0].namesrv, "New", 2)
    assert Counter(queue.broker_name for queue in made) == {"broker-a": 3, "broker-b": 3}


def test_routes_are_looked_up_again(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "looks", settings=ProducerSettings(poll_name_server_interval=50)) as producer:
        producer.send(Message("Looked", b"x"))
        end = time.monotonic() + LIMIT
        while producer._sender.routes.find("Looked").is_default:
            assert time.monotonic() < end
            time.sleep(0.02)
        # a name server that is gone leaves the routes as they are
        producer._client._name_servers = ["127.0.0.1:1"]
        producer._sender.routes.refresh()
        assert producer.send(Message("Looked", b"y")).status == "SEND_OK"


def test_another_default_topic(served: ListeningBroker) -> None:
    settings = ProducerSettings(create_topic_key="NoSuchDefault")
    with Producer(served.namesrv, "key", settings=settings) as producer, pytest.raises(RemoteError, match="no broker"):
        producer.send(Message("Unmade", b"x"))


# ---- a broker that is frozen


def test_durations() -> None:
    latencies = (0, 49, 100, 550, 1799, 1800, 3000, 5000, 10_000, 15_000)
    assert [*map(not_available_duration, latencies)] == [0, 0, 0, 2000, 2000, 5000, 6000, 10_000, 10_000, 30_000]


def test_the_latency_table() -> None:
    now = [0.0]
    table = LatencyTable(lambda: now[0])
    assert (table.pick_one_at_least(), table.is_available("a"), table.is_reachable("a")) == (None, True, True)
    table.update("a", 10_000, 10_000, is_reachable=False)
    table.update("b", 10, 0, is_reachable=True)
    assert (table.is_available("a"), table.is_reachable("a"), table.is_available("b")) == (False, False, True)
    assert {table.pick_one_at_least() for _ in range(20)} == {"b"}
    # a shorter time does not end a longer one
    table.update("a", 600, 2000, is_reachable=False)
    now[0] = 9_999
    assert not table.is_available("a")
    now[0] = 10_000
    assert table.is_available("a")
    asked: list[str] = []

    def serves(address: str) -> bool:
        asked.append(address)
        return True

    table.detect({"a": "here:1"}.get, serves, 2000)
    assert (table.is_reachable("a"), asked) == (True, ["here:1"])
    table.detect({"a": "here:1"}.get, serves, 2000)
    assert asked == ["here:1"]


def failures(namesrv: str, frozen: str, count: int, settings: ProducerSettings) -> int:
    """Return how many of `count` messages failed, to a topic on two brokers of which one is frozen."""
    failed = 0
    with Producer(namesrv, "frozen", settings=settings) as producer:
        for _ in range(count):
            try:
                assert producer.send(Message("Frozen", b"x")).queue.broker_name != frozen
            except RemoteError:
                failed += 1
    return failed


def test_a_frozen_broker_costs_one_time_out(tmp_path: Path) -> None:
    with (
        serving_here(tmp_path / "a", CONFIG, {}) as one,
        serving(tmp_path / "b", "--writable", "--create", "--register", one.namesrv, "-c", broker_b(tmp_path)) as other,
    ):
        wait_for_route(one.namesrv, "TBW102", 2)
        with Producer(one.namesrv) as producer:
            for _ in range(8):
                producer.send(Message("Frozen", b"x"))
        wait_for_route(one.namesrv, "Frozen", 2)
        other.process.send_signal(signal.SIGSTOP)
        try:
            slow = ProducerSettings(send_msg_timeout=1000)
            # each time-out moves the turn to the other broker: 4 of 16, as a Java producer has it
            assert failures(one.namesrv, "broker-b", 16, slow) in (3, 4)
            assert failures(one.namesrv, "broker-b", 16, slow._replace(send_latency_enable=True)) == 1
            # time for another attempt
            patient = slow._replace(send_msg_timeout=30_000, send_msg_max_timeout_per_request=1000)
            assert failures(one.namesrv, "broker-b", 4, patient) == 0
        finally:
            other.process.send_signal(signal.SIGCONT)


def broker_b(folder: Path) -> str:
    path = folder / "broker-b.conf"
    path.write_text("brokerName=broker-b\nmappedFileSizeCommitLog=1048576\ntimerWheelEnable=false\n")
    return str(path)


# ---- retries and settings


def test_an_asynchronous_send_goes_to_another_broker(tmp_path: Path) -> None:
    with serving_here(tmp_path / "a", CONFIG, {}) as one:
        with Producer(one.namesrv, "again") as producer:
            with serving_here(tmp_path / "b", CONFIG, {}, name="broker-b", register_at=one.namesrv):
                wait_for_route(one.namesrv, "TBW102", 2)
                assert {producer.send(Message("Again", b"x")).queue.broker_name for _ in range(8)} == {
                    "broker-a",
                    "broker-b",
                }
            results = [producer.send_soon(Message("Again", b"x"), seconds=LIMIT).result(LIMIT) for _ in range(8)]
            assert {result.queue.broker_name for result in results} == {"broker-a"}
        settings = ProducerSettings(retry_times_when_send_async_failed=0)
        with Producer(one.namesrv, "once", settings=settings) as producer:
            producer.queues("Again")
            gone = producer._sender.routes.find("Again")
            gone.addresses = {"broker-a": "127.0.0.1:1"}
            with pytest.raises(RemoteError):
                producer.send_soon(Message("Again", b"x")).result(LIMIT)


def test_an_asynchronous_send_ends_at_its_time_out(tmp_path: Path) -> None:
    options = "--writable", "--create", "-c", broker_b(tmp_path)
    with serving(tmp_path / "a", *options) as broker, Producer(broker.namesrv) as producer:
        producer.send(Message("Late", b"x"))
        broker.process.send_signal(signal.SIGSTOP)
        try:
            soon = producer.send_soon(Message("Late", b"x"), seconds=0.3)
            with pytest.raises(RemoteError, match="not answered in time"):
                soon.result(LIMIT)
        finally:
            broker.process.send_signal(signal.SIGCONT)


def test_a_queue_of_another_topic_is_refused(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "mistakes", settings=ProducerSettings(namespace="space")) as producer:
        (queue, *_) = producer.queues("Right")
        with pytest.raises(UsageError, match="message's topic not equal mq's topic"):
            producer.send(Message("Wrong", b"x"), queue)
        assert producer.send(Message("Right", b"x"), queue).queue == queue
        whole = queue._replace(topic="space%Right")
        assert producer.send(Message("Right", b"x"), whole).queue == queue


def test_a_chosen_queue_is_tried_once(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "chosen") as producer, pytest.raises(BrokerError) as caught:
        producer.send(Message("Chosen", b"x"), MessageQueue("broker-a", 99, "Chosen"))
    assert "sent" not in caught.value.message


def test_settings_by_their_names() -> None:
    settings = settings_from(
        {"sendMsgTimeout": "5000", "vipChannelEnabled": "true", "retryAnotherBrokerWhenNotStoreOK": "true"}
    )
    assert (settings.send_msg_timeout, settings.vip_channel_enabled) == (5000, True)
    assert settings.retry_another_broker_when_not_store_ok
    for name, text in (("no", "1"), ("compressLevel", "10"), ("compressLevel", "x"), ("vipChannelEnabled", "1")):
        with pytest.raises(UsageError):
            settings_from({name: text})


def test_bodies_are_compressed_as_set(served: ListeningBroker) -> None:
    for kind in ("ZLIB", "LZ4", "ZSTD"):
        settings = ProducerSettings(compress_msg_body_over_howmuch=10, compress_level=9, compress_type=kind)
        with Producer(served.namesrv, "small", settings=settings) as producer:
            producer.send(Message(f"Small-{kind}", b"a" * 9))
            producer.send(Message(f"Small-{kind}", b"a" * 100))
        found = sorted(consumed(served, f"Small-{kind}", 2), key=lambda one: len(one.plain_body()))
        assert [len(one.plain_body()) for one in found] == [9, 100]
        assert [bool(one.sys_flag & 1) for one in found] == [False, True]


def test_the_vip_channel_is_two_ports_below(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "vip", settings=ProducerSettings(vip_channel_enabled=True)) as producer:
        queue = producer.queues("Vip")[0]
        host, port = served.address.rsplit(":", 1)
        assert producer._sender._address(queue) == f"{host}:{int(port) - 2}"
        producer.send(Message("Vip", b"by the VIP channel"), queue)
    assert [one.plain_body() for one in consumed(served, "Vip", 1)] == [b"by the VIP channel"]


def test_namespaces(served: ListeningBroker) -> None:
    assert with_namespace("N", "T") == with_namespace("N", "N%T") == "N%T"
    assert with_namespace("N", "%RETRY%G") == "%RETRY%N%G"
    assert with_namespace("N", "TBW102") == "TBW102"
    assert without_namespace("N", "%DLQ%N%G") == "%DLQ%G"
    assert without_namespace("N", "M%T") == "M%T"
    with Producer(served.namesrv, "spaced", settings=ProducerSettings(namespace="N")) as producer:
        assert producer.group == "N%spaced"
        result = producer.send(Message("Spaced", b"x"), producer.queues("Spaced")[1])
        assert (result.queue.topic, result.queue.queue_id) == ("Spaced", 1)
    (message,) = consumed(served, "N%Spaced", 1)
    assert message.properties()["INSTANCE_ID"] == "N"


# ---- selectors and batches

QUEUES = tuple(MessageQueue(name, number, "T") for name in ("r1@a", "r2@b") for number in range(3))


def test_selectors() -> None:
    message = Message("T", b"x")
    # Integer.hashCode, Long.hashCode and String.hashCode
    assert by_hash(-7)(QUEUES, message) == QUEUES[1]
    assert by_hash(1 << 40)(QUEUES, message) == QUEUES[256 % 6]
    assert by_hash("order-7")(QUEUES, message) == by_hash("order-7")(QUEUES, message)
    assert by_hash("a")(QUEUES, message) == QUEUES[97 % 6]
    assert by_random()(QUEUES, message) in QUEUES
    near = by_machine_room({"r2"})
    assert [near(QUEUES, message) for _ in range(4)] == [QUEUES[3], QUEUES[4], QUEUES[5], QUEUES[3]]
    with pytest.raises(UsageError, match="select message queue return null"):
        by_machine_room({"r3"})(QUEUES, message)


def test_messages_of_one_key_are_in_one_queue_in_order(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "ordered") as producer:
        producer.send(Message("Ordered", b"x"))
        # the route of the default topic gives way to the topic's own in between
        for number in range(20):
            producer.send(Message("Ordered", b"%d" % number, properties={"KEYS": "k"}), by_hash("order-7"))
            producer._sender.routes.refresh()
    found = [one for one in consumed(served, "Ordered", 21) if one.properties().get("KEYS") == "k"]
    assert [one.body for one in found] == [b"%d" % number for number in range(20)]
    assert len({one.queue_id for one in found}) == 1


def test_an_ordered_topic_keeps_its_queues_while_a_broker_is_away() -> None:
    route = route_of("T", b'{"brokerDatas":[],"orderTopicConf":"a:2;b:1","queueDatas":[]}')
    assert route.writable == (MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T"), MessageQueue("b", 0, "T"))


def test_batches_are_split_as_rocketmq_splits_them() -> None:
    small = [Message("T", b"x" * 100)] * 5
    assert [len(one) for one in split(small, 2)] == [2, 2, 1]
    # topic, body and 20 bytes
    assert [len(one) for one in split(small, 10, limit=242)] == [2, 2, 1]
    assert [len(one) for one in split(small, 10, limit=241)] == [1] * 5
    large = Message("T", b"x" * 1_000_001)
    assert [len(one) for one in split([small[0], large, small[0]], 10)] == [1, 1, 1]
    mixed = [Message("T", b"x"), Message("U", b"x"), Message("U", b"x", properties={"WAIT": "false"})]
    assert [len(one) for one in split(mixed, 10)] == [1, 1, 1]
    delayed = Message("T", b"x", properties={"DELAY": "1"})
    assert [len(one) for one in split([small[0], delayed, small[0]], 10)] == [1, 1, 1]
    assert (is_single([delayed]), is_single([small[0]])) == (True, False)
    timed = Message("T", b"x", properties={"TIMER_DELAY_SEC": "1"})
    assert [len(one) for one in split([small[0], timed, small[0]], 10)] == [1, 1, 1]
    assert is_single([timed])


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Message("T", b"x", properties={"DELAY": "1"})], "TimeDelayLevel is not supported for batching"),
        *(
            ([Message("T", b"x"), Message("T", b"x", properties={name: "5000"})], "Delayed messages are not supported")
            for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
        ),
        ([Message("%RETRY%G", b"x")], "Retry Group is not supported for batching"),
        ([Message("T", b"x"), Message("U", b"x")], "The topic of the messages in one batch should be the same"),
        ([Message("T", b"x"), Message("T", b"x", properties={"WAIT": "false"})], "The waitStoreMsgOK of the messages"),
        ([], "there must be some"),
    ],
)
def test_what_is_no_batch(messages: list[Message], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_batch(messages)


def test_many_threads_send(served: ListeningBroker) -> None:
    with Producer(served.namesrv, "threads") as producer:
        keys: list[str] = []

        def send() -> None:
            keys.extend(producer.send(Message("Threads", b"x")).unique_key for _ in range(20))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
    assert len(set(keys)) == 80
