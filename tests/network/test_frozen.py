"""A broker that is frozen (SIGSTOP), as one whose machine hangs: connected, and without an answer, for ever.

What RocketMQ's clients wait for has a time-out; so have ours, and messages of the other broker come meanwhile.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import Message
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, OrderlyStatus
from tests.network.serving import Served, serving, serving_here
from tests.network.test_producing import CONFIG, broker_b, wait_for_route
from tests.rmqctl.looking import run

COUNT = 8
LIMIT = 60
KINDS = (pytest.param("pull", marks=pytest.mark.thorough), "push", "orderly")


class Two(NamedTuple):
    """Two brokers of one cluster, with COUNT messages in queues of each, and the second one to freeze."""

    namesrv: str
    other: Served

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Have the second broker frozen."""
        self.other.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.other.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def two_brokers(tmp_path: Path) -> Iterator[Two]:
    """Serve two stores below a folder."""
    with (
        serving_here(tmp_path / "a", CONFIG, {}) as one,
        serving(tmp_path / "b", "--writable", "--create", "--register", one.namesrv, "-c", broker_b(tmp_path)) as other,
    ):
        wait_for_route(one.namesrv, "TBW102", 2)
        with Producer(one.namesrv) as producer:
            for _ in range(8):  # so that both have the topic
                producer.send(Message("Frozen", b"x"))
            for queue in wait_for_route(one.namesrv, "Frozen", 2):
                producer.send_batch([Message("Frozen", queue.broker_name.encode())] * (COUNT // 4), queue)
        yield Two(one.namesrv, other)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with two_brokers(tmp_path) as brokers:
        yield brokers


@contextlib.contextmanager
def consuming(kind: str, namesrv: str, got: Counter[bytes]) -> Iterator[None]:
    """Count the bodies that a consumer of a kind gets."""
    if kind == "pull":
        ended = threading.Event()

        def polling(consumer: Consumer) -> None:
            while not ended.is_set():
                got.update(message.body for message in consumer.poll(0.5))
                consumer.commit()

        with Consumer(namesrv, "pull", "Frozen", begin="first") as consumer:
            thread = threading.Thread(target=polling, args=(consumer,))
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()
        return
    options = MemberOptions(begin="first")

    def at_once(messages: list[object], context: object) -> ConsumeStatus:
        got.update(message.body for message in messages)  # type: ignore[attr-defined]
        return ConsumeStatus.CONSUME_SUCCESS

    def in_order(messages: list[object], context: object) -> OrderlyStatus:
        got.update(message.body for message in messages)  # type: ignore[attr-defined]
        return OrderlyStatus.SUCCESS

    listener = {"on_messages": at_once} if kind == "push" else {"on_ordered": in_order}
    with PushConsumer(namesrv, kind, {"Frozen": "*"}, options=options, **listener):
        yield


def spent(reached: Callable[[], bool]) -> float:
    """Return the seconds until something is so."""
    begun = time.monotonic()
    while not reached():
        assert time.monotonic() - begun < LIMIT
        time.sleep(0.05)
    return time.monotonic() - begun


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_beside_a_frozen_broker(kind: str, two: Two) -> None:
    got: Counter[bytes] = Counter()
    took: dict[str, float] = {}
    with contextlib.ExitStack() as running:
        with two.frozen():
            begun = time.monotonic()
            running.enter_context(consuming(kind, two.namesrv, got))
            took["started"] = time.monotonic() - begun
            took["the other's"] = spent(lambda: got[b"broker-a"] >= COUNT)
            assert got[b"broker-b"] == 0
        took["thawed"] = spent(lambda: got[b"broker-b"] >= COUNT)
        with two.frozen():
            with Producer(two.namesrv) as producer:
                queue = next(one for one in wait_for_route(two.namesrv, "Frozen", 2) if one.broker_name == "broker-a")
                producer.send(Message("Frozen", b"while frozen"), queue)
            took["while frozen"] = spent(lambda: got[b"while frozen"] == 1)
            begun = time.monotonic()
            running.close()
            took["closed"] = time.monotonic() - begun
    print(kind, {name: round(seconds, 1) for name, seconds in took.items()})
    assert took["the other's"] < 30


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("topics", "-t", "Frozen"), 0),  # the name server alone is asked
        (("groups",), 3),
        pytest.param(("consume", "-t", "Frozen", "-g", "here"), 3, marks=pytest.mark.thorough),
        (("cluster",), 3),
        (("topics", "create", "-t", "New"), 3),
        (("topics", "delete", "-t", "Frozen", "--yes"), 3),
        (("groups", "create", "-g", "new"), 3),
    ],
)
def test_a_verb_beside_a_frozen_broker(arguments: tuple[str, ...], code: int, two: Two) -> None:
    assert run("consume", "-n", two.namesrv, "-t", "Frozen", "-g", "here").code == 0
    wait_for_route(two.namesrv, "%RETRY%here", 2)
    with two.frozen():
        begun = time.monotonic()
        done = run(*arguments, "-n", two.namesrv)
        took = time.monotonic() - begun
    print(arguments, done.code, round(took, 1), done.err)
    assert done.code == code
    assert took < LIMIT


def test_a_broker_that_hangs_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of the others wait for its time-outs: they come in between."""
    clock = [100.0]

    def hangs(consumer: Consumer, pause: float, ends: object) -> None:
        clock[0] += 9
        raise RemoteError("not answered")

    monkeypatch.setattr(Consumer, "_round", hangs)
    monkeypatch.setattr("rmqctl.network.clients.consumer.time.monotonic", lambda: clock[0])
    with contextlib.closing(Consumer("127.0.0.1:1", "g", "T", joins=False)) as consumer:
        consumer._balance_at = 1000.0
        assert consumer.poll(0) == []
        assert consumer._balance_at == 109 + 3 * 9
