"""Queues that a producer may send to: routes of topics and of the default topic (TopicPublishInfo)."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import RemoteError, UsageError
from rmqctl.formats.message import Message
from rmqctl.network.clients.client import Route
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.remoting.codec import MessageQueue

Accepts = Callable[[MessageQueue], bool]


class _Routes(Protocol):
    def route(self, topic: str, *, anew: bool = False) -> Route | None:
        """Return the route of a topic."""


class Publish:
    """Queues of one topic, taken in turn. `is_default`: they are those that the topic gets when it is made."""

    def __init__(self, queues: tuple[MessageQueue, ...], addresses: dict[str, str], *, is_default: bool) -> None:
        self.queues = queues
        self.addresses = addresses
        self.is_default = is_default
        self._turn: Iterator[int] = iter(())
        self.reset()

    def reset(self) -> None:
        """Continue the turn at a random queue."""
        self._turn = itertools.count(random.randrange(1 << 20))

    def next(self, *accepts: Accepts) -> MessageQueue | None:
        """Return the next queue that all of `accepts` take, None without one."""
        for _ in self.queues:
            queue = self.queues[next(self._turn) % len(self.queues)]
            if all(accept(queue) for accept in accepts):
                return queue
        return None


class PublishRoutes:
    """Routes that a producer has looked up, refreshed every 30 s. May be used by many threads."""

    def __init__(self, client: _Routes, settings: ProducerSettings) -> None:
        self._client = client
        self._settings = settings
        self._found: dict[str, Publish] = {}
        self._due = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def find(self, topic: str) -> Publish:
        """Return the queues of a topic. RemoteError where no broker takes its messages, or no name server answers."""
        found = self._found.get(topic)
        if found is None or not found.queues:
            found = self._look_up(topic)
        if found is None or not found.queues:
            raise RemoteError(
                f"no broker takes messages for topic {topic!r}",
                hint="create the topic, or look whether the broker serves for reading only",
            )
        return found

    def address(self, queue: MessageQueue) -> str:
        """Return the address of a queue's broker. BrokerUnknownError."""
        own = self._found.get(queue.topic)
        for one in [own, *self._found.values()] if own is not None else list(self._found.values()):
            if queue.broker_name in one.addresses:
                return one.addresses[queue.broker_name]
        raise BrokerUnknownError(f"no name server knows broker {queue.broker_name!r}")

    def address_of(self, broker: str) -> str | None:
        """Return the address of a broker, None where no route has it."""
        for one in list(self._found.values()):
            if broker in one.addresses:
                return one.addresses[broker]
        return None

    def topics(self) -> list[str]:
        """Return the topics that were looked up."""
        return list(self._found)

    def _look_up(self, topic: str) -> Publish | None:
        made = self._own(topic) or self._default(topic)
        if made is not None:
            self._found[topic] = made
            if self._thread is None:
                self._thread = threading.Thread(target=self._refresh, name="rmqctl-routes", daemon=True)
                self._thread.start()
        return made

    def _own(self, topic: str) -> Publish | None:
        route = self._client.route(topic, anew=True)
        return None if route is None else Publish(route.writable, route.addresses, is_default=False)

    def _default(self, topic: str) -> Publish | None:
        route = self._client.route(self._settings.create_topic_key, anew=True)
        if route is None:
            return None
        most = self._settings.default_topic_queue_nums
        queues = (queue._replace(topic=topic) for queue in route.writable if queue.queue_id < most)
        return Publish(tuple(queues), route.addresses, is_default=True)

    def refresh_soon(self) -> None:
        """Have the routes looked up now, in the background."""
        self._due.set()

    def _refresh(self) -> None:
        while not self._ended:
            self._due.wait(self._settings.poll_name_server_interval / 1000)
            self._due.clear()
            if not self._ended:
                self.refresh()

    def refresh(self) -> None:
        """Look all routes up; those that no name server gives stay as they are (updateTopicRouteInfoFromNameServer)."""
        for topic, old in list(self._found.items()):
            with contextlib.suppress(RemoteError):
                made = self._own(topic)
                if made is None:
                    continue
                if (made.queues, made.addresses) == (old.queues, old.addresses):
                    old.is_default = False
                else:
                    self._found[topic] = made

    def close(self) -> None:
        """End the refreshing."""
        self._ended = True
        self._due.set()


class BrokerUnknownError(RemoteError):
    """No route has the broker of a queue."""


# Brokers that failed or were slow, and the choice of a queue that avoids them (MQFaultStrategy).

_LATENCIES = (50, 100, 550, 1800, 3000, 5000, 15000)
_DURATIONS = (0, 0, 2000, 5000, 6000, 10000, 30000)
_ISOLATED = 10_000
_DETECT_SECONDS = 3.0


@dataclass
class _Fault:
    """What is known of a broker. Times are of the table's clock, in ms."""

    latency: int
    available_at: float = 0.0
    check_at: float = 0.0
    is_reachable: bool = True


class LatencyTable:
    """Latencies of brokers by name, and until when each is avoided (LatencyFaultToleranceImpl). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = lambda: time.monotonic() * 1000) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._lock = threading.Lock()

    def update(self, broker: str, latency: int, duration: int, *, is_reachable: bool) -> None:
        """Record a send: its latency and for how long the broker is avoided, both in ms."""
        with self._lock:
            fault = self._faults.setdefault(broker, _Fault(latency))
            fault.latency = latency
            fault.is_reachable = is_reachable
            if duration > 0:
                fault.available_at = max(fault.available_at, self._clock() + duration)

    def is_available(self, broker: str) -> bool:
        """Return whether the broker is not avoided."""
        fault = self._faults.get(broker)
        return fault is None or self._clock() >= fault.available_at

    def is_reachable(self, broker: str) -> bool:
        """Return whether the last attempt reached the broker."""
        fault = self._faults.get(broker)
        return fault is None or fault.is_reachable

    def pick_one_at_least(self) -> str | None:
        """Return a reachable broker of the table at random, None where it has none."""
        with self._lock:
            found = [name for name, fault in self._faults.items() if fault.is_reachable]
        return random.choice(found) if found else None

    def remove(self, broker: str) -> None:
        """Forget a broker."""
        with self._lock:
            self._faults.pop(broker, None)

    def detect(self, resolve: Callable[[str], str | None], is_serving: Callable[[str], bool], interval: int) -> None:
        """Try each broker that is due; one that serves is reachable, one without an address is forgotten."""
        for name, fault in list(self._faults.items()):
            if self._clock() < fault.check_at:
                continue
            fault.check_at = self._clock() + interval
            address = resolve(name)
            if address is None:
                self.remove(name)
            elif is_serving(address):
                fault.is_reachable = True


def not_available_duration(latency: int) -> int:
    """Return for how long a broker of this latency is avoided; both in ms."""
    found = [duration for least, duration in zip(_LATENCIES, _DURATIONS, strict=True) if latency >= least]
    return found[-1] if found else 0


class FaultStrategy:
    """Choice of queues. Without sendLatencyEnable a retry avoids the last broker, and that is all."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.is_enabled = settings.send_latency_enable
        self.has_detector = settings.start_detector_enable
        self.table = LatencyTable()
        self._interval = settings.detect_interval
        self._ended = threading.Event()

    def select(self, publish: Publish, last: str | None, *, is_retry: bool) -> MessageQueue:
        """Return the next queue of `publish`, of another broker than `last` if there is one."""

        def is_other(queue: MessageQueue) -> bool:
            return queue.broker_name != last

        if not self.is_enabled:
            found = publish.next(is_other) or publish.next()
        else:
            if is_retry:
                publish.reset()
            found = (
                publish.next(lambda queue: self.table.is_available(queue.broker_name), is_other)
                or publish.next(lambda queue: self.table.is_reachable(queue.broker_name), is_other)
                or publish.next()
            )
        assert found is not None
        return found

    def update(self, broker: str, seconds: float, *, is_isolated: bool, is_reachable: bool) -> None:
        """Record how a send to a broker went; one that failed counts as 10 s."""
        if self.is_enabled:
            latency = int(seconds * 1000)
            duration = not_available_duration(_ISOLATED if is_isolated else latency)
            self.table.update(broker, latency, duration, is_reachable=is_reachable)

    def start_detector(self, resolve: Callable[[str], str | None], is_serving: Callable[[str], bool]) -> None:
        """Try brokers of the table every 3 s, with startDetectorEnable."""
        if not (self.is_enabled and self.has_detector):
            return

        def detect() -> None:
            while not self._ended.wait(_DETECT_SECONDS):
                self.table.detect(resolve, is_serving, self._interval)

        threading.Thread(target=detect, name="rmqctl-detector", daemon=True).start()

    def close(self) -> None:
        """End the detector."""
        self._ended.set()


# Choice of a queue by the caller: by a key, at random, by machine room (MessageQueueSelector).

Select = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Returns one of the queues of a message's topic."""

_INT = 1 << 31
_ROOM_SEPARATOR = "@"


def by_hash(key: str | int) -> Select:
    """Return the selector of one queue for one key, the same as a Java client's (SelectMessageQueueByHash)."""
    code = java_hash(key) if isinstance(key, str) else _number_hash(key)

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[abs(code) % len(queues)]

    return select


def by_random() -> Select:
    """Return a selector of random queues (SelectMessageQueueByRandom)."""
    return lambda queues, message: random.choice(queues)


def by_machine_room(rooms: Collection[str]) -> Select:
    """Return a selector of queues in turn, of brokers named `zone@name` with a zone of `rooms`.

    RocketMQ's own SelectMessageQueueByMachineRoom selects nothing, and its sends fail. Names of brokers are read as its
    consumers do (AllocateMessageQueueByMachineRoom).
    """
    turn = itertools.count()

    def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        near = [
            queue
            for queue in queues
            if _ROOM_SEPARATOR in queue.broker_name and queue.broker_name.split(_ROOM_SEPARATOR)[0] in rooms
        ]
        if not near:
            raise UsageError(
                "select message queue return null.", hint=f"no broker of the topic is in {', '.join(sorted(rooms))}"
            )
        return near[next(turn) % len(near)]

    return select


def _number_hash(number: int) -> int:
    """Return Integer.hashCode, or Long.hashCode for a number that is no int."""
    if -_INT <= number < _INT:
        return number
    bits = number & (1 << 64) - 1
    folded = (bits ^ bits >> 32) & (1 << 32) - 1
    return folded - (1 << 32) if folded >= _INT else folded
