"""Queues that a producer may send to: routes of topics and of the default topic (TopicPublishInfo)."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.clients.routes import Route
from rmqctl.network.remoting.fastjson import MessageQueue

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
        """Return the next queue that all of `accepts` take, None where there is none."""
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
