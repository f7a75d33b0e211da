"""What our clients do for others: the next messages are asked for early, and requests that they cannot answer are told
so at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from unittest.mock import Mock

import pytest

from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.channel import Answers
from rmqctl.network.clients.client import BrokerError, Client, route_of
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.membership import averagely
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.pulling import QueuePulls
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.remoting.codec import (
    RESPONSE_FLAG,
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    fastjson,
    parse_body,
    queue_of_key,
)
from rmqctl.network.serving import ListeningBroker, LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.network.callers import with_header
from tests.network.push.pushing import wait_until
from tests.network.serving import free_pair, serving, serving_here

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
COUNT = 100
QUEUE = MessageQueue("broker-a", 0, "Ahead")
SLAVE_ROUTE = b"""{"brokerDatas":[{"brokerName":"broker-a","brokerAddrs":{0:"m",1:"s"}}],
"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    path: Path = tmp_path_factory.mktemp("store") / "store"
    with MessageStore.open(path, "rw", CONFIG, create=True) as store:
        for number in range(COUNT):
            store.put(Message("Ahead", b"%d" % number))
        store.wait_for_dispatch()
        with LocalBroker(store) as broker:
            yield broker


def test_the_next_messages_come_while_the_last_ones_are_worked_at(local: LocalBroker) -> None:
    with Consumer(local.namesrv, "ahead", "Ahead", begin="first", dial=local.dial) as consumer:
        first = consumer.poll(60)
        assert len(first) == 32
        wait_until(lambda: consumer._pulls._pulls[QUEUE].next_offset == COUNT)
        # what is on its way is not consumed: who leaves now comes back to it
        consumer.commit()
        found = [*first, *consumer.poll(60)]
        assert [message.queue_offset for message in found] == list(range(64))
    with Consumer(local.namesrv, "ahead", "Ahead", begin="first", dial=local.dial) as consumer:
        assert [message.queue_offset for message in consumer.messages(to_the_end=True)] == list(range(64, COUNT))


def test_who_stops_in_the_middle_comes_back_to_the_next_message(local: LocalBroker) -> None:
    def taken(count: int) -> list[int]:
        with Consumer(local.namesrv, "slow", "Ahead", begin="first", dial=local.dial) as consumer:
            messages = consumer.messages(to_the_end=True)
            found = [next(messages).queue_offset for _ in range(count)]
            consumer.commit()
            messages.close()
            return found

    assert [*taken(5), *taken(40), *taken(COUNT - 45)] == list(range(COUNT))


def test_a_request_that_a_client_does_not_know_is_answered_at_once(tmp_path: Path) -> None:
    """mqadmin would wait for ten seconds."""
    with serving_here(tmp_path / "store", CONFIG, {}) as served:
        asking = Client(served.namesrv)
        with Producer(served.namesrv) as producer:
            producer.send(Message("Ahead", b"x"))
        with Consumer(served.namesrv, "asked", "Ahead", begin="first") as consumer:
            (message,) = consumer.poll(60)
            fields = {"consumerGroup": "asked", "clientId": consumer.client_id, "msgId": message.message_id}
            # it has no callback: RocketMQ's lite pull consumers say the same
            with pytest.raises(BrokerError, match="The Consumer Group <asked> not exist in this consumer") as caught:
                asking.ask(
                    served.address,
                    *with_header(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields),
                    seconds=60,
                )
            assert consumer._asked(served.address, RemotingCommand(99)) is None
        asking.close()
    assert caught.value.answer_code == ResponseCode.SYSTEM_ERROR


def test_a_member_without_a_callback_says_how_and_where_it_is(tmp_path: Path) -> None:
    with serving_here(tmp_path / "store", CONFIG, {}) as served:
        asking = Client(served.namesrv)
        with Producer(served.namesrv) as producer:
            queue = producer.send(Message("Ahead", b"x")).queue
        with Consumer(served.namesrv, "asked", "Ahead", "paid || new", begin="first") as consumer:
            consumer.poll(1)
            wait_until(lambda: consumer._member.offsets.in_memory(queue) == 1)
            fields = {"consumerGroup": "asked", "clientId": consumer.client_id, "jstackEnable": True}
            info = parse_body(
                asking.ask(
                    served.address,
                    *with_header(RequestCode.GET_CONSUMER_RUNNING_INFO, fields),
                    seconds=60,
                ).body
            )
            status = {"group": "asked", "topic": "Ahead"}
            answer = asking.ask(
                served.address,
                *with_header(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status),
                seconds=60,
            )
            (table,) = parse_body(answer.body)["consumerTable"].values()
            asked = consumer._asked("", RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "no"}))
            assert isinstance(asked, Future)
            other = asked.result(60)
        asking.close()
    properties = info["properties"]
    assert (properties["PROP_CONSUME_TYPE"], properties["consumerGroup"]) == ("CONSUME_PASSIVELY", "asked")
    assert properties["PROP_NAMESERVER_ADDR"] == f"{served.namesrv};"
    assert int(properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
    assert {(one["topic"], one["subString"]) for one in info["subscriptionSet"]} == {
        ("Ahead", "paid || new"), ("%RETRY%asked", "*"),
    }  # fmt: skip
    held = {queue_of_key(key): one["commitOffset"] for key, one in info["mqTable"].items()}
    assert held[queue] == 1
    assert len([one for one in held if one is not None and one.topic == "Ahead"]) == 4
    assert "MainThread" in info["jstack"]
    assert {queue_of_key(key): offset for key, offset in table.items()}[queue] == 1
    assert other.remark == "The Consumer Group <no> not exist in this consumer"


def test_a_member_without_a_callback_goes_on_where_an_operator_sets_it(tmp_path: Path) -> None:
    """A broker of 4.x has the members set the offsets (220)."""
    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
        queue = producer.send(Message("Ahead", b"a")).queue
        for body in (b"b", b"c"):
            producer.send(Message("Ahead", body), queue)
        with Consumer(served.namesrv, "moves", "Ahead", begin="first") as consumer:
            bodies: list[bytes] = []
            until = time.monotonic() + 60
            while len(bodies) < 3 and time.monotonic() < until:
                bodies += [one.body for one in consumer.poll(60)]
            for group, offset in (("other", 0), ("moves", 1)):
                body = fastjson({"offsetTable": {queue: offset}})
                asked = RemotingCommand(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "Ahead", "group": group}, body
                )
                answered = consumer._asked(served.address, asked)
                assert isinstance(answered, Future)
                assert answered.result(60).code == ResponseCode.SUCCESS
            until = time.monotonic() + 10
            while len(bodies) < 5 and time.monotonic() < until:
                bodies += [one.body for one in consumer.poll(1)]
            broken = RemotingCommand(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "Ahead", "group": "moves"}, b"{"
            )
            answered = consumer._asked(served.address, broken)
            assert isinstance(answered, Future)
            answer = answered.result(60)
        assert bodies == [b"a", b"b", b"c", b"b", b"c"]
        assert answer.code == ResponseCode.SYSTEM_ERROR
        asking = Client(served.namesrv)
        where = {"consumerGroup": "moves", "topic": "Ahead", "queueId": queue.queue_id}
        answer = asking.ask(served.address, *with_header(RequestCode.QUERY_CONSUMER_OFFSET, where))
        asking.close()
    assert answer.fields["offset"] == "3"


def test_offsets_that_a_broker_lost_are_committed_again(tmp_path: Path) -> None:
    """A broker that is killed has lost what was committed in the last seconds: the next pull commits, too."""
    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
        queue = producer.send(Message("Ahead", b"a")).queue
        where = {"consumerGroup": "kept", "topic": "Ahead", "queueId": queue.queue_id}
        asking = Client(served.namesrv)

        def committed() -> str:
            return asking.ask(served.address, *with_header(RequestCode.QUERY_CONSUMER_OFFSET, where)).fields["offset"]

        with Consumer(served.namesrv, "kept", "Ahead", begin="first") as consumer:
            assert [one.body for one in consumer.poll(60)] == [b"a"]
            consumer.commit()
            assert committed() == "1"
            asking.ask(
                served.address,
                *with_header(RequestCode.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": 0}),
            )
            producer.send(Message("Ahead", b"b"), queue)
            wait_until(lambda: committed() == "1")
            # nothing is committed of queues that were not consumed
            other = {**where, "queueId": (queue.queue_id + 1) % 4, "setZeroIfNotFound": "false"}
            assert (
                asking.ask(
                    served.address,
                    *with_header(RequestCode.QUERY_CONSUMER_OFFSET, other),
                    allowed=(22,),
                ).code
                == 22
            )
        asking.close()


@pytest.mark.parametrize("problem", [ValueError("no rooms"), ZeroDivisionError("none")])
def test_a_strategy_that_fails_is_asked_again(local: LocalBroker, problem: Exception) -> None:
    had: list[bytes] = []
    warned: list[str] = []
    calls: list[str] = []

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], who: str) -> list[MessageQueue]:
        calls.append(who)
        if len(calls) <= 2:
            raise problem
        return averagely(queues, members, who)

    def take(messages: Sequence[StoredMessage], context: object) -> ConsumeStatus:
        had.extend(one.body for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = MemberOptions(begin="first", allocate=allocate, warn=warned.append, dial=local.dial)
    group = type(problem).__name__
    with PushConsumer(local.namesrv, group, {"Ahead": "*"}, take, options=options) as consumer:
        until = time.monotonic() + 30
        consumer.wait(lambda: len(had) == COUNT or time.monotonic() > until)
    assert len(had) == COUNT
    assert f"queues of Ahead cannot be shared out: {group}: {problem}" in warned


@pytest.mark.parametrize("kind", ["lite", "push"])
def test_consumers_go_on_while_the_name_server_is_away(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.network.clients.client._ROUTE_SECONDS", 0.2)
    had: list[bytes] = []

    def take(messages: Sequence[StoredMessage], context: object) -> ConsumeStatus:
        had.extend(one.body for one in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    def wait(count: int, consumer: Consumer | PushConsumer) -> None:
        until = time.monotonic() + 20
        while len(had) < count and time.monotonic() < until:
            if isinstance(consumer, Consumer):
                had.extend(one.body for one in consumer.poll(0.1))
            else:
                time.sleep(0.1)
        assert len(had) == count

    with contextlib.ExitStack() as stack:
        names = stack.enter_context(contextlib.ExitStack())
        namesrv = names.enter_context(serving_here(tmp_path / "names", CONFIG, {}, name="names")).namesrv
        store = stack.enter_context(MessageStore.open(tmp_path / "store", "rw", CONFIG, create=True))
        served = stack.enter_context(ListeningBroker(store, register_at=namesrv))
        producer = stack.enter_context(Producer(served.namesrv))
        producer.send(Message("Ahead", b"0"))
        client = Client(namesrv)
        until = time.monotonic() + 60
        while client.route("Ahead", anew=True) is None and time.monotonic() < until:
            time.sleep(0.1)
        client.close()
        consumer: Consumer | PushConsumer
        settings = PushSettings(rebalance_seconds=0.2, first_pull_seconds=0.0, error_seconds=0.1)
        if kind == "lite":
            consumer = Consumer(namesrv, "away", "Ahead", begin="first", settings=settings)
        else:
            options = MemberOptions(begin="first")
            consumer = PushConsumer(namesrv, "away", {"Ahead": "*"}, take, settings=settings, options=options)
        stack.enter_context(consumer)
        wait(1, consumer)
        names.close()
        for number in range(1, 6):
            time.sleep(0.3)
            producer.send(Message("Ahead", b"%d" % number))
            wait(number + 1, consumer)
        consumer.commit()
        offsets = [served.broker.offsets.find("away", "Ahead", queue_id) for queue_id in range(4)]
        assert sum(one or 0 for one in offsets) == 6


def test_a_consumer_without_a_callback_waits_for_a_broker_that_restarts(tmp_path: Path) -> None:
    names_port, port = free_pair()
    options = ("--writable", "--create", "--listen", f"127.0.0.1:{port}", "--namesrv", f"127.0.0.1:{names_port + 1}")
    warned: list[str] = []
    bodies: list[bytes] = []
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving(tmp_path / "store", *options))
        with Producer(served.namesrv) as producer:
            producer.send(Message("Ahead", b"before"))
        consumer = stack.enter_context(Consumer(served.namesrv, "waits", "Ahead", begin="first", warn=warned.append))
        bodies += [one.body for one in consumer.poll(30)]
        assert served.end() == 0
        assert consumer.poll(0.5) == []
        served = stack.enter_context(serving(tmp_path / "store", *options))
        with Producer(served.namesrv, "again") as producer:
            producer.send(Message("Ahead", b"after"))
        until = time.monotonic() + 30
        while len(bodies) < 2 and time.monotonic() < until:
            bodies += [one.body for one in consumer.poll(0.2)]
        consumer.close()
        assert served.end() == 0
    assert bodies == [b"before", b"after"]
    # for each reason once, not for each queue
    assert 1 <= len([line for line in warned if "cannot be pulled" in line]) <= 3


def test_a_consumer_without_a_callback_tries_for_ever(tmp_path: Path) -> None:
    """As RocketMQ's: what fails is tried again, also where a broker refuses. A limit ends that."""
    warned: list[str] = []
    bodies: list[bytes] = []
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serving_here(tmp_path / "store", CONFIG, {}))
        producer = stack.enter_context(Producer(served.namesrv))
        producer.send(Message("Ahead", b"before"))
        consumer = stack.enter_context(Consumer(served.namesrv, "tries", "Ahead", begin="first", warn=warned.append))
        limited = Consumer(served.namesrv, "ends", "Ahead", begin="first", commit=False, failing_seconds=30)
        stack.enter_context(contextlib.closing(limited))
        bodies += [one.body for one in consumer.poll(30)]
        assert limited.poll(30)
        client = stack.enter_context(contextlib.closing(Client(served.namesrv)))
        client.ask(
            served.address,
            *with_header(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Ahead"}),
        )
        with pytest.raises(BrokerError, match="topic"):
            limited.poll(30)
        assert consumer.poll(0.5) == []
        wait_until(lambda: any("cannot be pulled" in line for line in warned))
        # long after
        for pulls in consumer._pulls.failing():
            pulls.failing_since -= 3600
        assert consumer.poll(0.5) == []
        # a commit may have been due meanwhile
        (line,) = (line for line in warned if "is not committed" not in line)
        assert "cannot be pulled" in line
        for _ in range(8):
            producer.send(Message("Ahead", b"after"))
        until = time.monotonic() + 30
        while len(bodies) < 2 and time.monotonic() < until:
            bodies += [one.body for one in consumer.poll(0.2)]
    assert bodies[:2] == [b"before", b"after"]


class _Starting:
    """A broker that has counted nothing yet when it is asked the first `times`."""

    is_open = True

    def __init__(self, times: int, remark: str) -> None:
        self.times, self.remark, self.asked = times, remark, 0

    def dial(self, address: str, answers: Answers) -> _Starting:
        self.answers = answers
        return self

    def send(self, command: RemotingCommand, seconds: float = 0) -> None:
        self.asked += 1
        code, remark = (1, self.remark) if self.asked <= self.times else (0, None)
        self.answers.received(RemotingCommand(code, {}, b"{}", remark, command.opaque, RESPONSE_FLAG))

    def close(self) -> None:
        self.is_open = False


def test_a_broker_that_starts_is_asked_again_what_it_is() -> None:
    broker = _Starting(2, "java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast")
    client = Client("", dial=broker.dial)
    assert client.ask_runtime_info("broker:1").body == b"{}"
    assert broker.asked == 3


def test_another_error_is_no_start() -> None:
    broker = _Starting(2, "java.lang.NullPointerException")
    with pytest.raises(BrokerError, match="NullPointer"):
        Client("", dial=broker.dial).ask_runtime_info("broker:1")
    assert broker.asked == 1


def test_an_offset_that_was_set_is_not_overwritten_at_the_end(tmp_path: Path) -> None:
    """The consumer ends before it takes up what an operator was told is set (220)."""
    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
        queue = producer.send(Message("Ahead", b"a")).queue
        for body in (b"b", b"c"):
            producer.send(Message("Ahead", body), queue)
        with Consumer(served.namesrv, "set", "Ahead", begin="first") as consumer:
            bodies: list[bytes] = []
            until = time.monotonic() + 60
            while len(bodies) < 3 and time.monotonic() < until:
                bodies += [one.body for one in consumer.poll(60)]
            body = fastjson({"offsetTable": {queue: 1}})
            fields = {"topic": "Ahead", "group": "set"}
            reset = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            answered = consumer._asked(served.address, reset)
            assert isinstance(answered, Future)
            assert answered.result(60).code == ResponseCode.SUCCESS
        asking = Client(served.namesrv)
        where = {"consumerGroup": "set", "topic": "Ahead", "queueId": queue.queue_id}
        answer = asking.ask(served.address, *with_header(RequestCode.QUERY_CONSUMER_OFFSET, where))
        asking.close()
    assert answer.fields["offset"] == "1"


def test_a_queue_that_cannot_be_asked_keeps_back_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker is away: messages of the others come on."""
    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv) as producer:
        queue = producer.send(Message("Ahead", b"a")).queue
        with Consumer(served.namesrv, "on", "Ahead", begin="first") as consumer:
            request = consumer._pulls._request

            def some(pulls: QueuePulls) -> RemotingCommand:
                if pulls.queue != queue:
                    raise RemoteError("no route to the broker")
                return request(pulls)

            monkeypatch.setattr(consumer._pulls, "_request", some)
            found: list[bytes] = []
            until = time.monotonic() + 20
            while not found and time.monotonic() < until:
                found += [one.body for one in consumer.poll(1)]
            assert found == [b"a"]


def test_a_slave_that_hangs_holds_up_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("127.0.0.1:1")
    route = route_of("T", SLAVE_ROUTE)
    asked: list[str] = []
    monkeypatch.setattr(client, "_heartbeat", {"consumerDataSet": [{}]})
    monkeypatch.setattr(client, "_routes", {"T": (time.monotonic(), route)})

    def connection(address: str) -> Mock:
        asked.append(address)
        return Mock(is_open=True)

    monkeypatch.setattr(client, "connection", connection)
    monkeypatch.setattr(client, "_beat_at", asked.append)
    client.beat()
    assert asked == ["m", "m"]
    client.close()


def test_a_check_that_takes_long_keeps_no_process_from_ending(tmp_path: Path) -> None:
    with serving_here(tmp_path / "store", CONFIG, {}) as served, Producer(served.namesrv, "ends"):
        checking = [thread for thread in threading.enumerate() if thread.name == "checks-ends"]
        assert [thread.daemon for thread in checking] == [True]


def test_what_is_at_hand_when_a_loop_is_left_comes_again(local: LocalBroker) -> None:
    def consumer() -> Consumer:
        return Consumer(local.namesrv, "hand", "Ahead", begin="first", dial=local.dial)

    def first_left() -> int:
        with consumer() as one:
            return next(one.messages(to_the_end=True)).queue_offset

    def fails(*, polls: bool) -> None:
        with consumer() as one:
            if polls:
                assert one.poll(60)[0].queue_offset == 25
                raise ZeroDivisionError
            for message in one.messages(to_the_end=True):
                if message.queue_offset == 7:
                    raise ZeroDivisionError

    with consumer() as one:
        for message in one.messages(to_the_end=True):
            if message.queue_offset == 5:
                break
        # the same consumer goes on with it, too
        assert next(one.messages(to_the_end=True)).queue_offset == 5
    assert first_left() == 5
    with pytest.raises(ZeroDivisionError):
        fails(polls=False)
    assert first_left() == 7
    with consumer() as one:
        for message in one.messages(to_the_end=True):
            if message.queue_offset == 9:
                # nothing that was pulled with it
                one.commit()
                assert one._client.group_offset("hand", QUEUE) == 10
            if message.queue_offset == 10:
                break
    assert first_left() == 10
    with consumer() as one:
        assert len(list(one.messages(to_the_end=True, limit=3))) == 3
    assert first_left() == 13
    with consumer() as one:
        assert [len(batch) for batch in one.batches(5, to_the_end=False, limit=12)] == [5, 5, 2]
    assert first_left() == 25
    with pytest.raises(ZeroDivisionError):
        fails(polls=True)
    assert first_left() == 25
    with consumer() as one:
        for batch in one.batches(20, to_the_end=True):
            if batch[-1].queue_offset == COUNT - 1:
                break
    left = first_left()
    assert 25 < left < COUNT
