"""A broker or name server that is frozen (SIGSTOP), as one whose machine hangs: connected, and never answering.

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
from rmqctl.network.clients.client import Client
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, OrderlyStatus
from rmqctl.network.remoting.codec import RemotingCommand
from rmqctl.network.serving import ListeningBroker
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
                # the other broker may be frozen before it has what was consumed last
                with contextlib.suppress(RemoteError):
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


def spent(reached: Callable[[], bool], limit: float = LIMIT) -> float:
    """Return the seconds until something is so."""
    begun = time.monotonic()
    while not reached():
        assert time.monotonic() - begun < limit
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


def test_no_poll_waits_for_a_frozen_broker(two: Two) -> None:
    """Joining asks both brokers, more than once. A call is over when its seconds are, as is the first of a member."""
    bodies: list[bytes] = []
    took: list[float] = []
    for is_new in (True, False):
        with contextlib.ExitStack() as ending:
            if is_new:
                ending.enter_context(two.frozen())
            consumer = ending.enter_context(Consumer(two.namesrv, "polls", "Frozen", begin="first"))
            if not is_new:
                while len(bodies) < COUNT * 2:
                    bodies += [one.body for one in consumer.poll(1)]
                ending.enter_context(two.frozen())
                # a broker that cannot be asked whether members came is asked first
                consumer._share_soon()
            until = time.monotonic() + 8
            while time.monotonic() < until or (is_new and len(bodies) < COUNT):
                assert time.monotonic() < until + LIMIT
                begun = time.monotonic()
                bodies += [one.body for one in consumer.poll(0.2)]
                took.append(time.monotonic() - begun)
    print(f"longest poll {max(took):.2f} s of {len(took)}")
    # one may have met a busy machine
    assert sorted(took)[-2] < 2.5


@contextlib.contextmanager
def two_name_servers(tmp_path: Path) -> Iterator[tuple[ListeningBroker, Served]]:
    """Serve a store that is registered at its own name server and at that of another process, to be frozen."""
    with (
        serving(tmp_path / "other", "--writable", "--create", "-c", broker_b(tmp_path)) as other,
        serving_here(tmp_path / "own", CONFIG, {}, register_at=other.namesrv, tells=True) as own,
    ):
        wait_for_route(other.namesrv, "TBW102", 2)
        yield own, other


def test_clients_go_on_with_the_other_name_server(tmp_path: Path) -> None:
    """The first one that a client asks does not answer: that costs one time-out, and it is not asked first again."""
    took: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        took[name] = time.monotonic() - begun

    got: Counter[bytes] = Counter()
    with two_name_servers(tmp_path) as (own, other), contextlib.ExitStack() as running:
        other.process.send_signal(signal.SIGSTOP)
        running.callback(other.process.send_signal, signal.SIGCONT)
        both = f"{other.namesrv};{own.namesrv}"
        producer = running.enter_context(Producer(both))
        with timed("first send"):
            producer.send(Message("Frozen", b"broker-a"))
        for number in range(3):
            with timed(f"another topic {number}"):
                producer.send(Message(f"Another{number}", b"x"))
        # the other name server learns of new topics at once, though the first one does not answer
        assert {queue.broker_name for queue in wait_for_route(own.namesrv, "Another2", 1)} == {"broker-a"}
        for kind in ("pull", "push", "orderly"):
            with timed(kind), consuming(kind, both, got):
                spent(lambda kind=kind: got[b"broker-a"] == len(took) - 3)  # type: ignore[misc]
        with timed("topics"):
            assert run("topics", "-n", both).code == 0
    print({name: round(seconds, 1) for name, seconds in took.items()})
    assert min(took[f"another topic {number}"] for number in range(3)) < 2.5  # on a busy machine the best of them


def test_threads_that_fail_together_leave_one_name_server() -> None:
    """Each of them finds the first one silent: the second one is the first from then on, not the silent one again."""
    client = Client("127.0.0.1:1;127.0.0.1:2")
    together = threading.Barrier(2)
    silent: list[str] = []

    def ask(address: str, *_: object, **__: object) -> RemotingCommand:
        if address == "127.0.0.1:1":
            together.wait(LIMIT)
            silent.append(address)
            raise RemoteError("not answered")
        return RemotingCommand(0)

    client.ask = ask  # type: ignore[method-assign]
    threads = [threading.Thread(target=client.ask_name_server, args=(105,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(silent) == 2
    assert client.name_servers == ["127.0.0.1:2", "127.0.0.1:1"]
    client.close()
