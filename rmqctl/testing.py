"""A RocketMQ for tests, without a JVM: a fixture of pytest, and a context manager for all else.

    def test_orders_are_sent(rocketmq):
        place_order(rocketmq.namesrv)                    # the code under test, with a client of any language
        (order,) = rocketmq.expect("Orders")
        assert order.body == b"one"

pytest finds the fixture by itself where rmqctl is installed. rmqctl does without pytest, which this module needs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pytest

from rmqctl.store.files.background import sleep

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.network.clients.consumer import Consumer
    from rmqctl.network.clients.producer import Producer, SendResult
    from rmqctl.network.remoting.codec import RemotingCommand, RequestCode
    from rmqctl.network.remoting.requests import Reply
    from rmqctl.network.serving import ListeningBroker
    from rmqctl.store.message_store import MessageStore

_LOOK_SECONDS = 0.02
_SECONDS = 10.0


class _Fault(NamedTuple):
    """What happens to requests of `codes`, all of them without any: the `answer`, nothing, or their own after
    `seconds`."""

    codes: frozenset[int]
    answer: RemotingCommand | None = None
    seconds: float = 0.0

    def hits(self, code: int) -> bool:
        """Return whether it is about requests of this code."""
        return not self.codes or code in self.codes


class RocketMQ:
    """A name server and a broker at free ports of this machine, with a store of their own in a temporary folder that
    goes at the end. A context manager.

    `namesrv` and `address`: what clients are given as the name server's and the broker's address, `host:port`. `store`:
    the open store. `reports`: lines that the broker had for an operator. Topics are created when they are sent to, too.
    """

    def __init__(self, *topics: str, settings: Mapping[str, str] | None = None) -> None:
        """`topics`: NAME, NAME:TYPE or NAME:TYPE:QUEUES. `settings`: as of a broker.conf."""
        self._topics = topics
        self._settings = dict(settings or {})
        self._opened = contextlib.ExitStack()
        self._serving = contextlib.ExitStack()
        self._forwarded_ms = 0
        self._faults: list[_Fault] = []
        self._broker: ListeningBroker | None = None
        self._seeding: Producer | None = None
        self.reports: list[str] = []
        self.namesrv = self.address = ""
        self._grpc: str | None = None
        self.store: MessageStore

    def __enter__(self) -> RocketMQ:
        from rmqctl.store.files.outputs import temporary_folder

        with contextlib.ExitStack() as opened:
            self._path = opened.enter_context(temporary_folder("rmqctl-testing-")) / "store"
            opened.callback(self._stop)
            self._start()
            self.create_topics(*self._topics)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _start(self) -> None:
        from rmqctl.network.serving import ListeningBroker
        from rmqctl.store.config.config import config_from_properties
        from rmqctl.store.message_store import MessageStore

        config = config_from_properties({**_SMALL, **self._settings}, "settings")
        with contextlib.ExitStack() as serving:
            self.store = serving.enter_context(
                MessageStore.open(self._path, "rw", config, create=True, clock=self._now, allocate_ahead=False)
            )
            places = [self.namesrv, self.address, *([] if self._grpc is None else [self._grpc])]
            ports = tuple(int(one.rpartition(":")[2] or 0) for one in places)
            self._broker = ListeningBroker(
                self.store, None, self.reports.append, self._settings, clock=self._now, ports=ports
            )
            self._broker.broker.intercept = self._intercept
            serving.enter_context(self._broker)
            self.namesrv, self.address, self._grpc = self._broker.namesrv, self._broker.address, self._broker.grpc
            self._serving = serving.pop_all()

    @property
    def grpc(self) -> str:
        """The address for gRPC clients, `host:port` (the extra grpc). The first look restarts the broker with it."""
        if self._grpc is None:
            self._grpc = ""
            self.restart()
        return self._grpc

    def _stop(self) -> None:
        seeding, self._seeding = self._seeding, None
        if seeding is not None:
            seeding.close()
        self._serving.close()

    # ---- topics and messages

    def create_topics(self, *topics: str) -> None:
        """Create topics: NAME, NAME:TYPE or NAME:TYPE:QUEUES."""
        from rmqctl.network.topic_config import topic_from_text

        assert self._broker is not None
        self._broker.broker.have_topics([topic_from_text(text, _QUEUES) for text in topics])

    def send(
        self,
        topic: str,
        body: bytes | str = b"",
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
    ) -> SendResult:
        """Seed a message."""
        from rmqctl.formats.message import Message

        given = {"TAGS": tags, "KEYS": " ".join(keys), "DELAY": str(delay_level) if delay_level else ""}
        merged = {**(properties or {}), **{name: text for name, text in given.items() if text}}
        if self._seeding is None:
            self._seeding = self.producer("rmqctl-testing")
            self._seeding.__enter__()
        return self._seeding.send(Message(topic, body.encode() if isinstance(body, str) else body, properties=merged))

    def messages(self, topic: str, *, tags: str | None = None) -> list[StoredMessage]:
        """Return the messages of a topic up to now, queue by queue; none of a topic that is not there. Those of a retry
        or dead letter topic too: %RETRY%GROUP, %DLQ%GROUP."""
        from rmqctl.formats.errors import NotFoundError
        from rmqctl.store.read.filter import Criteria

        self.store.flush()
        try:
            return list(self.store.messages(Criteria(topic, tags=tags), order="queue"))
        except NotFoundError:
            return []

    def expect(
        self, topic: str, count: int = 1, *, tags: str | None = None, seconds: float = _SECONDS
    ) -> list[StoredMessage]:
        """Return the messages of a topic once there are `count`. AssertionError where there are others in the end."""
        end = time.monotonic() + seconds
        while len(found := self.messages(topic, tags=tags)) < count and time.monotonic() < end:
            sleep(_LOOK_SECONDS)
        if len(found) != count:
            shown = ", ".join(repr(one.body[:40]) for one in found[:10])
            raise AssertionError(f"{len(found)} messages in {topic} instead of {count}: {shown}; {self.reports}")
        return found

    def expect_consumed(self, group: str, topic: str, *, seconds: float = _SECONDS) -> None:
        """Wait until a group has committed all messages of a topic. AssertionError where it has not in the end. Clients
        of RocketMQ commit every 5 s, and when they end."""
        end = time.monotonic() + seconds
        while (left := self._left(group, topic)) and time.monotonic() < end:
            sleep(_LOOK_SECONDS)
        if left:
            raise AssertionError(f"group {group} has not committed {left} messages of {topic}; {self.reports}")

    def _left(self, group: str, topic: str) -> int:
        assert self._broker is not None
        offsets = self._broker.broker.offsets
        self.store.flush()
        queues = self.store.files.queues.of_topics(topic.__eq__)
        return sum(queue.max_offset - (offsets.find(group, topic, queue.queue_id) or 0) for queue in queues)

    def producer(self, group: str = "testing") -> Producer:
        """Return a producer connected to it. A context manager."""
        from rmqctl.network.clients.producer import Producer

        return Producer(self.namesrv, group)

    def consumer(self, group: str, topic: str, tags: str = "*") -> Consumer:
        """Return a consumer that begins at the first message. A context manager."""
        from rmqctl.network.clients.consumer import Consumer

        return Consumer(self.namesrv, group, topic, tags, begin="first")

    # ---- time and faults

    def _now(self) -> int:
        return time.time_ns() // 1_000_000 + self._forwarded_ms

    def forward(self, seconds: float) -> None:
        """Move the broker's clock forward: what waits for its time comes at once, delays, retries and timers alike."""
        self._forwarded_ms += round(seconds * 1000)

    def refusing(
        self, *requests: RequestCode | int, code: int = 1, remark: str = "refused for a test"
    ) -> contextlib.AbstractContextManager[None]:
        """Answer requests of these codes, all of them without any, with an error in the block."""
        from rmqctl.network.remoting.codec import RemotingCommand

        return self._under(_Fault(frozenset(map(int, requests)), RemotingCommand(code, remark=remark)))

    def dropping(self, *requests: RequestCode | int) -> contextlib.AbstractContextManager[None]:
        """Leave requests unanswered, and do nothing about them."""
        return self._under(_Fault(frozenset(map(int, requests))))

    def delaying(self, seconds: float, *requests: RequestCode | int) -> contextlib.AbstractContextManager[None]:
        """Look at requests only after some time."""
        return self._under(_Fault(frozenset(map(int, requests)), seconds=seconds))

    @contextlib.contextmanager
    def _under(self, fault: _Fault) -> Iterator[None]:
        self._faults = [fault, *self._faults]
        try:
            yield
        finally:
            self._faults = [one for one in self._faults if one is not fault]

    def _intercept(self, request: RemotingCommand, serve: Callable[[], Reply | None]) -> Reply | None:
        from rmqctl.network.remoting.requests import Suspended, answered

        fault = next((one for one in self._faults if one.hits(request.code)), None)
        if fault is None:
            return serve()
        if fault.seconds:
            return Suspended(fault.seconds, (), serve)
        return None if fault.answer is None else answered(request, fault.answer)

    def restart(self, *, down_seconds: float = 0.0) -> None:
        """Stop name server and broker, and start them at the same ports with the same store after some time, in which
        connections are refused."""
        self._stop()
        sleep(down_seconds)
        self._start()


_QUEUES = 4
# nothing of it is seen by clients, and a start makes these files
_SMALL = {
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "timerWheelEnable": "true",
}


@pytest.fixture
def rocketmq() -> Iterator[RocketMQ]:
    """Yield a RocketMQ with an empty store of its own."""
    with RocketMQ() as made:
        yield made
