"""Our own producer and consumer: in process on an open store and over sockets, by the same code."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rmqctl.formats.errors import RemoteError, UsageError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.channel import Answers, Dial, SocketChannel
from rmqctl.network.clients.client import BrokerError
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.membership import (
    averagely,
    by_circle,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_machine_room_nearby,
)
from rmqctl.network.clients.producer import Producer
from rmqctl.network.remoting.codec import MessageQueue, RemotingCommand, RequestCode
from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.serving import serving_here

LIMIT = 60


class Cluster:
    """A broker to work with: its name server's address, and how it is reached."""

    def __init__(self, namesrv: str, dial: Dial) -> None:
        self.namesrv = namesrv
        self.dial = dial

    def producer(self, group: str = "P", **options: Any) -> Producer:
        return Producer(self.namesrv, group, self.dial, **options)

    def consumer(self, group: str, topic: str, tags: str = "*", **options: object) -> Consumer:
        return Consumer(self.namesrv, group, topic, tags, dial=self.dial, **{"begin": "first", **options})  # type: ignore[arg-type]  # options are those of Consumer


CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20)
SETTINGS = {"transactionCheckInterval": "200", "transactionTimeOut": "100"}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("local") / "store"
    config = CONFIG._replace(flush_disk_type="SYNC_FLUSH")
    with (
        MessageStore.open(path, "rw", config, create=True) as store,
        LocalBroker(store, properties=SETTINGS) as broker,
    ):
        yield Cluster(broker.namesrv, broker.dial)
    with MessageStore.open(path) as store:
        assert not store.files.has_abort()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving_here(tmp_path_factory.mktemp("remote") / "store", CONFIG, SETTINGS) as ready:
        yield Cluster(ready.namesrv, SocketChannel)


@pytest.fixture(params=["local", "remote"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Cluster)
    return found


def _all(consumer: Consumer, count: int) -> list[bytes]:
    """Bodies of so many messages."""
    found: list[bytes] = []
    end = time.monotonic() + LIMIT
    while len(found) < count and time.monotonic() < end:
        found += [message.plain_body() for message in consumer.poll(1)]
    return found


def test_what_is_sent_in_any_way_is_consumed_once(cluster: Cluster) -> None:
    with cluster.producer() as producer:
        results = [producer.send(Message("T", b"sync %d" % number, properties={"TAGS": "a"})) for number in range(4)]
        assert {result.status for result in results} == {"SEND_OK"}
        assert sorted(result.queue.queue_id for result in results) == [0, 1, 2, 3]
        assert producer.send(Message("T", b"l" * 20_000, properties={"TAGS": "b"})).queue_offset >= 0
        soon = [producer.send_soon(Message("T", b"soon %d" % number)) for number in range(4)]
        assert {future.result(LIMIT).status for future in soon} == {"SEND_OK"}
        producer.send_oneway(Message("T", b"oneway"))
        batch = producer.send_batch([Message("T", b"batch %d" % number) for number in range(3)])
        assert len(batch.message_ids) == 3
        with cluster.consumer("all", "T") as consumer:
            got = _all(consumer, 13)
        kinds = Counter(body.split()[0][:10] for body in got)
        assert kinds == {b"sync": 4, b"soon": 4, b"oneway": 1, b"batch": 3, b"l" * 10: 1}
        with cluster.consumer("tagged", "T", "b || c") as tagged:
            assert [len(message.plain_body()) for message in tagged.messages(to_the_end=True)] == [20_000]
        # the group goes on where it was; one that does not commit comes back to the same
        producer.send(Message("T", b"new"))
        with cluster.consumer("all", "T") as consumer:
            assert _all(consumer, 1) == [b"new"]
        with cluster.consumer("all", "T") as consumer:
            assert list(consumer.messages(to_the_end=True)) == []
        for _ in range(2):
            with cluster.consumer("looks", "T", commit=False) as consumer:
                assert len(list(consumer.messages(to_the_end=True))) == 14
        with cluster.consumer("late", "T", begin="last") as late:
            assert list(late.messages(to_the_end=True)) == []


def test_a_waiting_consumer_is_woken(cluster: Cluster) -> None:
    with cluster.producer() as producer, cluster.consumer("wakes", "Wake") as consumer:
        where = producer.send(Message("Wake", b"first")).queue
        assert _all(consumer, 1) == [b"first"]
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.extend(_all(consumer, 1)))
        thread.start()
        producer.send(Message("Wake", b"second"), where)
        thread.join(LIMIT)
        assert got == [b"second"]


def test_members_of_a_group_share_the_queues(cluster: Cluster) -> None:
    with cluster.producer() as producer:
        for number in range(8):
            producer.send(Message("Shared", b"%d" % number))
        with cluster.consumer("share", "Shared") as one, cluster.consumer("share", "Shared") as two:
            end = time.monotonic() + LIMIT
            while time.monotonic() < end and not (len(_own(one)) == len(_own(two)) == 2):
                one.poll(0)
                two.poll(0)
            assert sorted(_own(one) + _own(two)) == [0, 1, 2, 3]


def _own(consumer: Consumer) -> list[int]:
    """The queues of its own topic that a member has."""
    return [queue.queue_id for queue in consumer.queues if queue.topic == consumer.topic]


def test_what_has_a_time_comes_at_its_time(cluster: Cluster) -> None:
    with cluster.producer() as producer, cluster.consumer("timed", "Timed") as consumer:
        producer.require_timer("Timed")
        due = time.time_ns() // 1_000_000 + 1_000
        producer.send(Message("Timed", b"later", properties={"TIMER_DELIVER_MS": str(due)}))
        producer.send(Message("Timed", b"now"))
        now, later = _messages(consumer, 2)
        assert (now.body, later.body) == (b"now", b"later")
        assert later.store_timestamp >= due


def test_what_is_sent_back_comes_again(cluster: Cluster) -> None:
    with cluster.producer() as producer, cluster.consumer("back", "Back") as consumer:
        producer.send(Message("Back", b"x"))
        (message,) = _messages(consumer, 1)
        consumer.send_back(message, 1)
        consumer.send_back(message, -1)
        with cluster.consumer("look", "%DLQ%back") as dead:
            assert _all(dead, 1) == [b"x"]
        with cluster.consumer("back2", "%RETRY%back") as retries:
            (again,) = _messages(retries, 1)
        assert (again.body, again.reconsume_times) == (b"x", 1)


def _messages(consumer: Consumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    end = time.monotonic() + LIMIT
    while len(found) < count and time.monotonic() < end:
        found += consumer.poll(1)
    return found


def test_transactions_are_ended_at_once_or_when_the_broker_asks(cluster: Cluster) -> None:
    asked: list[bytes] = []

    def decide(message: Message) -> bool:
        asked.append(message.body)
        return message.body == b"later"

    with cluster.producer("pays") as producer, cluster.consumer("paid", "Pay") as consumer:
        producer.answer_checks(decide)
        producer.send_in_transaction(Message("Pay", b"yes"), lambda message: True)
        producer.send_in_transaction(Message("Pay", b"no"), lambda message: False)
        producer.send(Message("Pay", b"plain"))
        producer.send_in_transaction(Message("Pay", b"later"), lambda message: None)
        producer.send_in_transaction(Message("Pay", b"never"), lambda message: None)
        assert sorted(_all(consumer, 3)) == [b"later", b"plain", b"yes"]
        end = time.monotonic() + LIMIT
        while b"never" not in asked and time.monotonic() < end:
            assert consumer.poll(0.1) == []
        assert set(asked) == {b"later", b"never"}


def test_a_transaction_whose_outcome_fails_is_asked_for_later(cluster: Cluster) -> None:
    warned: list[str] = []

    def fail(message: Message) -> bool:
        raise ValueError("the bank is closed")

    with cluster.producer("banks", warn=warned.append) as producer, cluster.consumer("accounts", "Bank") as consumer:
        producer.answer_checks(lambda message: True)
        result = producer.send_in_transaction(Message("Bank", b"later"), fail)
        assert result.status == "SEND_OK"
        assert _all(consumer, 1) == [b"later"]
    assert len(warned) == 1
    assert "ValueError: the bank is closed" in warned[0]


def test_a_check_that_fails_is_made_again(cluster: Cluster) -> None:
    """It may use the producer, and its exception is none of the connection's."""
    asked: list[bytes] = []
    warned: list[object] = []
    with cluster.producer("checks", warn=warned.append) as producer, cluster.consumer("checked", "Check") as consumer:

        def decide(message: Message) -> bool:
            asked.append(message.body)
            if len(asked) == 1:
                raise ValueError("not now")
            producer.send(Message("Check", b"beside"))
            return True

        producer.answer_checks(decide)
        producer.send_in_transaction(Message("Check", b"later"), lambda message: None)
        assert sorted(_all(consumer, 2)) == [b"beside", b"later"]
    assert asked == [b"later"] * 2
    assert warned == ["the check of a transaction failed, and the broker will ask again: ValueError: not now"]


def test_what_goes_wrong_is_said(cluster: Cluster) -> None:
    with cluster.producer() as producer:
        with pytest.raises(BrokerError, match="answered with 29") as refused:
            producer.send(Message("T", b"x"), MessageQueue("broker-a", 99, "T"))
        assert refused.value.answer_code == 29
        with pytest.raises(RemoteError, match="no name server knows broker 'other'"):
            producer.send(Message("T", b"x"), MessageQueue("other", 0, "T"))
        with pytest.raises(UsageError):
            producer.send_batch([])
    with (
        cluster.consumer("g", "Nowhere", failing_seconds=30) as consumer,
        pytest.raises(RemoteError, match="'Nowhere'"),
    ):
        consumer.poll(0)


def test_nobody_listens() -> None:
    with Producer("127.0.0.1:1") as producer, pytest.raises(RemoteError, match=r"127\.0\.0\.1:1 cannot be reached"):
        producer.send(Message("T", b"x"))


@pytest.mark.parametrize(
    "address", ["nonsense", ":9876", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:65537", "a:" + "9" * 5000]
)
def test_what_is_no_address_is_said(address: str) -> None:
    """The system would take port 65537 for port 1."""
    with pytest.raises(RemoteError, match="is no address") as raised:
        SocketChannel(address, Answers(address, lambda command: None))
    assert raised.value.hint == "write it as HOST:PORT, 127.0.0.1:9876"


@pytest.mark.parametrize("members", [1, 2, 3, 5, 9])
def test_every_queue_has_one_member(members: int) -> None:
    queues = [MessageQueue("b", number, "T") for number in range(8)]
    names = [f"member {number}" for number in range(members)]
    for allocate in (averagely, by_circle):
        shares = [allocate(queues, names, name) for name in names]
        assert sorted(queue for share in shares for queue in share) == queues
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert allocate(queues, names, "nobody") == []
    assert [queue.queue_id for queue in averagely(queues, names, names[0])] == list(range(-(-8 // members)))


BROKERS = "broker-a", "idc1@broker-b", "idc2@broker-c"
ROOMS = [MessageQueue(broker, number, "T") for broker in BROKERS for number in range(4)]


@pytest.mark.parametrize(
    ("who", "hashed", "near"),
    [
        ("10.0.0.1@1", [0, 2, 4, 5, 6, 9, 10], [4, 5, 10]),
        ("10.0.0.2@7#x", [1, 7, 8], [6, 7, 11]),
        ("idc1-é", [3, 11], [8, 9]),
    ],
)
def test_shares_are_those_of_java_clients(who: str, hashed: list[int], near: list[int]) -> None:
    """As those of 5.3.3 share out the same: members of one group may be of both kinds."""
    members = ["10.0.0.1@1", "10.0.0.2@7#x", "idc1-é"]
    assert by_consistent_hash(ROOMS, members, who) == [ROOMS[number] for number in hashed]
    assert by_machine_room({"idc1", "idc2"})(ROOMS, members, who) == [ROOMS[number] for number in near]
    assert by_config(ROOMS[2:3])(ROOMS, members, who) == ROOMS[2:3]
    assert by_consistent_hash(ROOMS, members, "nobody") == by_machine_room({"idc1"})(ROOMS, members, "nobody") == []


def test_a_broker_that_is_gone_when_it_is_answered_ends_nothing_else() -> None:
    def gone(command: RemotingCommand) -> None:
        raise RemoteError("the connection is lost")

    answers = Answers("here", gone)
    _, future = answers.expect(RemotingCommand(105))
    answers.received(RemotingCommand(39, flag=2))
    answers.received(RemotingCommand(0, opaque=1, flag=1, remark="still here"))
    assert future.result(0).remark == "still here"


def test_a_time_to_begin_at_leaves_out_what_is_older_whatever_the_broker_finds(cluster: Cluster) -> None:
    with cluster.producer() as producer:
        queue = producer.send(Message("Times", b"old")).queue
        begin = time.time_ns() // 1_000_000 + 5
        while time.time_ns() // 1_000_000 < begin:
            time.sleep(0.001)
        producer.send(Message("Times", b"new"), queue)
    with cluster.consumer("times", "Times", begin=begin, commit=False) as consumer:
        # as brokers of 4.x may: they give the nearest message
        search = consumer._client.bound_of

        def nearest(queue: MessageQueue, code: RequestCode, timestamp: int | None = None) -> int:
            return max(0, search(queue, code, timestamp) - 1)

        consumer._client.bound_of = nearest  # type: ignore[method-assign]
        assert _all(consumer, 1) == [b"new"]


def test_queues_nearby_go_to_the_members_of_their_room() -> None:
    """As AllocateMachineRoomNearby: east and west have members, north has none and is shared by all."""
    queues = [
        MessageQueue(f"{room}-{letter}", number, "T")
        for room in ("east", "north", "west")
        for letter in "ab"
        for number in range(2)
    ]
    members = ["east-1", "east-2", "west-1"]
    allocate = by_machine_room_nearby(lambda name: name.split("-")[0] if "-" in name else "")
    shares = {who: [(one.broker_name, one.queue_id) for one in allocate(queues, members, who)] for who in members}
    assert shares == {
        "east-1": [("east-a", 0), ("east-a", 1), ("north-a", 0), ("north-a", 1)],
        "east-2": [("east-b", 0), ("east-b", 1), ("north-b", 0)],
        "west-1": [("west-a", 0), ("west-a", 1), ("west-b", 0), ("west-b", 1), ("north-b", 1)],
    }
    assert allocate(queues, members, "west-2") == []
    with pytest.raises(UsageError, match="'nowhere' has no zone"):
        allocate([MessageQueue("nowhere", 0, "T")], members, "east-1")
