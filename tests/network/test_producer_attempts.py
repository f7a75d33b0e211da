"""Where a producer's attempts go, and what bounds its asynchronous sends: against brokers that answer by a script."""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import Message
from rmqctl.network.clients.channel import Answers
from rmqctl.network.clients.client import BrokerError
from rmqctl.network.clients.producer import Producer, ProducerSettings
from rmqctl.network.clients.producing import sender
from rmqctl.network.remoting.codec import RESPONSE_FLAG, RemotingCommand, RequestCode, ResponseCode, fastjson

LIMIT = 60.0
A, B = "10.0.0.1:10911", "10.0.0.2:10911"
ID = "7F00000100002A9F0000000000000000"
FLUSH_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
Script = Callable[[str], int | None]
"""Returns the code of a broker's answer to a message; None for no answer. RemoteError where it is gone."""


class Brokers:
    """Two brokers and a name server without sockets. `sent`: address and request of each message."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.sent: list[tuple[str, RemotingCommand]] = []
        self.withheld: list[Callable[[], None]] = []
        self.others: list[tuple[str, int]] = []
        self.ended: list[str] = []

    def dial(self, address: str, answers: Answers) -> Channel:
        """See Dial."""
        return Channel(self, address, answers)

    def producer(self, group: str, **settings: Any) -> Producer:
        return Producer("names", group, self.dial, ProducerSettings(**settings))

    @property
    def addresses(self) -> list[str]:
        return [address for address, _ in self.sent]


class Channel:
    """A connection to one of them."""

    is_open = True

    def __init__(self, brokers: Brokers, address: str, answers: Answers) -> None:
        self._brokers, self._address, self._answers = brokers, address, answers

    def close(self) -> None:
        """See Channel."""

    def send(self, command: RemotingCommand, seconds: float = 0) -> None:
        """See Channel."""
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self._answer(command, ResponseCode.SUCCESS, body=fastjson(_ROUTE))
        elif command.code == RequestCode.SEND_MESSAGE_V2:
            self._brokers.sent.append((self._address, command))
            code = self._brokers.script(self._address)
            fields = {"queueId": "0", "queueOffset": "7", "msgId": ID}
            if code is None:
                self._brokers.withheld.append(lambda: self._answer(command, ResponseCode.SUCCESS, fields))
            else:
                self._answer(command, code, fields)
        else:
            if command.code == RequestCode.END_TRANSACTION:
                self._brokers.ended.append(command.fields["commitOrRollback"])
            self._brokers.others.append((self._address, command.code))
            self._answer(command, ResponseCode.SUCCESS)

    def _answer(
        self, command: RemotingCommand, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        self._answers.received(RemotingCommand(code, fields or {}, body, opaque=command.opaque, flag=RESPONSE_FLAG))


_ROUTE = {
    "brokerDatas": [
        {"brokerAddrs": {0: address}, "brokerName": name, "cluster": "c"} for name, address in (("a", A), ("b", B))
    ],
    "queueDatas": [
        {"brokerName": name, "perm": 6, "readQueueNums": 2, "writeQueueNums": 2, "topicSysFlag": 0} for name in "ab"
    ],
}


def scripted(answers: dict[str, int | RemoteError | None]) -> Script:
    def script(address: str) -> int | None:
        answer = answers[address]
        if isinstance(answer, RemoteError):
            raise answer
        return answer

    return script


# ---- attempts


def test_a_message_that_is_not_stored_safely_goes_to_another_broker_if_that_is_set() -> None:
    brokers = Brokers(scripted({A: FLUSH_TIMEOUT, B: 0}))
    with brokers.producer("stays") as producer:
        statuses = Counter(producer.send(Message("T", b"x")).status for _ in range(8))
    assert (statuses, Counter(brokers.addresses)) == ({"FLUSH_DISK_TIMEOUT": 4, "SEND_OK": 4}, {A: 4, B: 4})
    brokers = Brokers(scripted({A: FLUSH_TIMEOUT, B: 0}))
    with brokers.producer("moves", retry_another_broker_when_not_store_ok=True) as producer:
        results = [producer.send(Message("T", b"x")) for _ in range(8)]
    assert {(one.status, one.queue.broker_name) for one in results} == {("SEND_OK", "b")}
    assert len(brokers.sent) > 8
    # all attempts of a message send the same bytes
    assert len({request.body for _, request in brokers.sent}) == 1
    brokers = Brokers(scripted({A: FLUSH_TIMEOUT, B: int(ResponseCode.SLAVE_NOT_AVAILABLE)}))
    with brokers.producer("nowhere", retry_another_broker_when_not_store_ok=True) as producer:
        # stored, though not safely: that is no failure
        assert producer.send(Message("T", b"x")).status in ("FLUSH_DISK_TIMEOUT", "SLAVE_NOT_AVAILABLE")
    assert len(brokers.sent) == 3
    assert brokers.addresses[0] != brokers.addresses[1] != brokers.addresses[2]


@pytest.mark.parametrize(("times", "tried"), [(2, 3), (0, 1), (5, 6)])
def test_attempts_of_a_synchronous_send(times: int, tried: int) -> None:
    brokers = Brokers(scripted({A: 1, B: RemoteError("gone")}))
    with brokers.producer("sync", retry_times_when_send_failed=times) as producer, pytest.raises(RemoteError):
        producer.send(Message("T", b"x"))
    assert len(brokers.sent) == tried


@pytest.mark.parametrize(("times", "tried"), [(2, 3), (0, 1), (5, 6)])
def test_attempts_of_an_asynchronous_send(times: int, tried: int) -> None:
    brokers = Brokers(scripted({A: RemoteError("a is gone"), B: RemoteError("b is gone")}))
    with brokers.producer("async", retry_times_when_send_async_failed=times) as producer:
        sent = producer.send_soon(Message("T", b"x"))
        assert "is gone" in str(sent.exception(LIMIT))
    assert len(brokers.sent) == tried
    assert all(one != other for one, other in zip(brokers.addresses, brokers.addresses[1:], strict=False))


def test_an_answer_to_an_asynchronous_send_is_not_tried_again() -> None:
    brokers = Brokers(scripted({A: 1, B: 1}))
    with brokers.producer("answered") as producer, pytest.raises(BrokerError):
        producer.send_soon(Message("T", b"x")).result(LIMIT)
    assert len(brokers.sent) == 1


def test_only_messages_go_over_the_vip_channel() -> None:
    brokers = Brokers(scripted({"10.0.0.1:10909": 0, "10.0.0.2:10909": 0}))
    with brokers.producer("vip", vip_channel_enabled=True) as producer:
        for _ in range(4):
            producer.send(Message("T", b"x"))
        producer.send_soon(Message("T", b"x")).result(LIMIT)
        producer.send_oneway(Message("T", b"x"))
        producer._client.beat()
    assert {*brokers.addresses} == {"10.0.0.1:10909", "10.0.0.2:10909"}
    assert {address for address, code in brokers.others if code == RequestCode.HEART_BEAT} == {A, B}


def test_bodies_are_compressed_from_the_limit_on_and_by_the_level() -> None:
    text = b"".join(b"%d," % number for number in range(3000))
    sizes = []
    for level in (1, 9):
        brokers = Brokers(scripted({A: 0, B: 0}))
        with brokers.producer(
            f"level{level}", compress_level=level, compress_msg_body_over_howmuch=len(text), max_message_size=len(text)
        ) as producer:
            producer.send(Message("T", text[1:]))
            producer.send(Message("T", text))
        (_, plain), (_, compressed) = brokers.sent
        assert (plain.body, int(plain.fields["f"]) & 1) == (text[1:], 0)
        assert (compressed.body, int(compressed.fields["f"]) & 1) == (zlib.compress(text, level), 1)
        sizes.append(len(compressed.body))
    assert sizes[1] != sizes[0]


# ---- asynchronous sends, bounded


def bounded(group: str, brokers: Brokers, number: int = 10_000, size: int = 100 << 20) -> Producer:
    return brokers.producer(
        group,
        enable_backpressure_for_async_mode=True,
        back_pressure_for_async_send_num=number,
        back_pressure_for_async_send_size=size,
    )


def refusal(producer: Producer, body: bytes) -> str:
    """Send with a short time-out, and return what it ends with."""
    with pytest.raises(RemoteError) as caught:
        producer.send_soon(Message("T", body), seconds=0.05).result(LIMIT)
    return caught.value.message


def test_asynchronous_sends_are_bounded_in_number() -> None:
    brokers = Brokers(scripted({A: None, B: None}))
    with bounded("number", brokers, number=1) as producer:
        # 10 at least
        futures = [producer.send_soon(Message("T", b"x"), seconds=LIMIT) for _ in range(10)]
        assert refusal(producer, b"x") == "send message tryAcquire semaphoreAsyncNum timeout"
        assert len(brokers.sent) == 10
        waiting = threading.Thread(
            target=lambda: futures.append(producer.send_soon(Message("T", b"x"), seconds=LIMIT)), daemon=True
        )
        waiting.start()
        time.sleep(0.05)
        assert (waiting.is_alive(), len(brokers.sent)) == (True, 10)
        brokers.withheld[0]()
        waiting.join(LIMIT)
        assert len(brokers.sent) == 11
        _answer_all(brokers)
        assert {future.result(LIMIT).status for future in futures} == {"SEND_OK"}
        # every permit is free again, those of what was refused too
        assert len([producer.send_soon(Message("T", b"x"), seconds=LIMIT) for _ in range(10)]) == 10
        _answer_all(brokers)


def test_asynchronous_sends_are_bounded_in_bytes() -> None:
    brokers = Brokers(scripted({A: None, B: None}))
    with bounded("bytes", brokers, size=1) as producer:
        # 1 MiB at least
        body = b"x" * (600 << 10)
        first = producer.send_soon(Message("T", body), seconds=LIMIT)
        assert refusal(producer, body) == "send message tryAcquire semaphoreAsyncSize timeout"
        small = producer.send_soon(Message("T", b"x"), seconds=LIMIT)
        _answer_all(brokers)
        second = producer.send_soon(Message("T", body), seconds=LIMIT)
        _answer_all(brokers)
        assert [one.result(LIMIT).status for one in (first, small, second)] == ["SEND_OK"] * 3
        # more than all permits there are
        assert "semaphoreAsyncSize" in refusal(producer, b"x" * (2 << 20))


def test_a_send_that_fails_frees_its_permits() -> None:
    brokers = Brokers(scripted({A: RemoteError("gone"), B: 1}))
    with bounded("fails", brokers, number=10) as producer:
        for _ in range(25):
            with pytest.raises(RemoteError):
                producer.send_soon(Message("T", b"x"), seconds=LIMIT).result(LIMIT)


def test_waiting_counts_against_the_time_out() -> None:
    brokers = Brokers(scripted({A: None, B: None}))
    with bounded("late", brokers, number=10) as producer:
        for _ in range(10):
            producer.send_soon(Message("T", b"x"), seconds=LIMIT)
        given: list[float] = []
        add = producer._sender._deadlines.add

        def noted(seconds: float, late: Callable[[], None]) -> int:
            given.append(seconds)
            return add(seconds, late)

        producer._sender._deadlines.add = noted  # type: ignore[method-assign]
        threading.Timer(0.3, brokers.withheld[0]).start()
        sent = producer.send_soon(Message("T", b"x"), seconds=LIMIT)
        _answer_all(brokers)
        assert sent.result(LIMIT).status == "SEND_OK"
        assert given[0] < LIMIT - 0.2


def test_the_limits_are_those_of_the_version() -> None:
    brokers = Brokers(scripted({A: None, B: None}))
    with brokers.producer("new", client_version="5.5.0", enable_backpressure_for_async_mode=True) as producer:
        futures = [producer.send_soon(Message("T", b"x"), seconds=LIMIT) for _ in range(1024)]
        assert refusal(producer, b"x") == "send message tryAcquire semaphoreAsyncNum timeout"
        _answer_all(brokers)
        assert {future.result(LIMIT).status for future in futures} == {"SEND_OK"}


def test_without_the_setting_the_limits_are_those_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "UNASKED_NUMBER", 50)
    brokers = Brokers(scripted({A: None, B: None}))
    with brokers.producer("free", back_pressure_for_async_send_num=10) as producer:
        futures: Sequence[Any] = [producer.send_soon(Message("T", b"x"), seconds=LIMIT) for _ in range(50)]
        assert refusal(producer, b"x") == "invokeAsyncImpl tryAcquire semaphore timeout"
        _answer_all(brokers)
        assert {future.result(LIMIT).status for future in futures} == {"SEND_OK"}


def test_without_the_setting_one_message_may_be_larger_than_all_bytes_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "UNASKED_SIZE", 100)
    brokers = Brokers(scripted({A: None, B: None}))
    with brokers.producer("large") as producer:
        large = producer.send_soon(Message("T", b"x" * 1000), seconds=LIMIT)
        assert refusal(producer, b"x") == "send message tryAcquire semaphoreAsyncSize timeout"
        _answer_all(brokers)
        assert large.result(LIMIT).status == "SEND_OK"
        next_one = producer.send_soon(Message("T", b"x"), seconds=LIMIT)
        _answer_all(brokers)
        assert next_one.result(LIMIT).status == "SEND_OK"


def _answer_all(brokers: Brokers) -> None:
    for answer in brokers.withheld:
        answer()
    brokers.withheld.clear()


@pytest.mark.parametrize("code", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
def test_a_half_message_that_is_not_stored_safely_is_rolled_back(code: str) -> None:
    """What it is about is not begun (sendMessageInTransaction)."""
    begun: list[bytes] = []

    def begin(message: Message) -> bool:
        begun.append(message.body)
        return True

    brokers = Brokers(lambda address: int(ResponseCode[code]))
    with brokers.producer("pays") as producer:
        assert producer.send_in_transaction(Message("T", b"half"), begin).status == code
        brokers.script = lambda address: 0
        assert producer.send_in_transaction(Message("T", b"good"), begin).status == "SEND_OK"
    assert begun == [b"good"]
    assert brokers.ended == ["12", "8"]
