"""Takes messages as a member of a group when the caller asks for some (DefaultLitePullConsumerImpl)."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqctl.formats.errors import RemoteError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.clients.client import BrokerError, with_namespace, without_namespace
from rmqctl.network.clients.push.process_queue import ProcessQueue
from rmqctl.network.clients.push.push_consumer import MemberOptions, PullingMember
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.remoting import headers
from rmqctl.network.remoting.codec import MessageQueue, RequestCode

_LOOK_SECONDS = 0.2
# what joining begins at servers that are well is over by then, however short the first call
_GRACE_SECONDS = 0.5


POLLING = PushSettings(first_pull_seconds=0.0, error_seconds=1.0)
"""Settings of a consumer without a callback."""


@dataclass
class _Pulled:
    """Messages of a queue, in its order. `given`: how many of them the caller has. `is_polled`: these count as consumed
    with the next call, or at the end without an exception."""

    queue: MessageQueue
    held: ProcessQueue
    messages: Sequence[StoredMessage]
    given: int = 0
    is_polled: bool = False


class _Waiting:
    """Keeps what is pulled until it is asked for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pulled: deque[_Pulled] = deque()

    def submit(self, messages: Sequence[StoredMessage], held: ProcessQueue, queue: MessageQueue, starts: bool) -> None:
        """See ConsumeService."""
        with self._changed:
            self._pulled.append(_Pulled(queue, held, messages))
            self._changed.notify()

    def put_back(self, pulled: _Pulled) -> None:
        """Have messages that were taken be the next ones of their queue."""
        with self._changed:
            self._pulled.appendleft(pulled)

    def take(self, seconds: float, ends: Mapping[MessageQueue, int] | None) -> _Pulled | None:
        """Take the messages of the queue that had some first; with `ends` only what is before them. None where there
        are none within `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._place(ends) is not None, seconds)
            place = self._place(ends)
            if place is None:
                return None
            pulled = self._pulled[place]
            end = sys.maxsize if ends is None else ends[pulled.queue]
            taken = [one for one in pulled.messages if one.queue_offset < end]
            pulled.messages = pulled.messages[len(taken) :]
            if not pulled.messages:
                del self._pulled[place]
            return _Pulled(pulled.queue, pulled.held, taken)

    def _place(self, ends: Mapping[MessageQueue, int] | None) -> int | None:
        """The place of the first messages that may be taken. What was dropped is forgotten."""
        if any(one.held.is_dropped for one in self._pulled):
            self._pulled = deque(one for one in self._pulled if not one.held.is_dropped)
        for place, one in enumerate(self._pulled):
            if ends is None or one.messages[0].queue_offset < ends.get(one.queue, 0):
                return place
        return None


class Consumer(PullingMember):
    """One member of a group. A context manager; for one thread.

    Servers are asked in threads of its own: one that does not answer keeps no call waiting.

    A member consumes the group's retry topic along with its own, as RocketMQ's push consumers do: the group's members
    share the queues of both. Queues are shared out again every 20 s, and at once when the broker says that a member
    came or went. Offsets are committed every 5 s and at the end, unless `commit` is False: then the group stays where
    it is. A message counts as consumed when the next one is asked for: one whose handling raises, in the body of a loop
    or of `with`, comes again.
    """

    first_persist_seconds = 5.0

    def __init__(
        self,
        namesrv: str,
        group: str,
        topic: str,
        tags: str = "*",
        *,
        settings: PushSettings | None = None,
        **options: Any,
    ) -> None:
        """`tags`: an expression of tags, or a `BySql`. Illegal ones are a UsageError, as is a group that RocketMQ's
        clients of `client_version` refuse. `options` are those of MemberOptions.

        The first call for messages joins. It raises RefusedError where live members of the group subscribe otherwise,
        unless `force`; `warn` takes a line where there are live members. Topic and group are those of `namespace`, else
        of the namespace in the name server's address, which the messages do not show.

        Name servers and brokers that fail or do not know the topic yet are tried for ever, as RocketMQ's consumers do,
        and `warn` takes a line. With `failing_seconds` that is an error: at once before there are queues and where a
        broker refuses, after that time where one is away.
        """
        super().__init__(namesrv, group, {topic: tags}, settings or POLLING, MemberOptions(**options))
        self.group = self._member.group
        self.topic = with_namespace(self._options.namespace, topic)
        self._waiting = _Waiting()
        self._consume_by(self._waiting, None)
        self._at_hand: _Pulled | None = None
        self._grace = 0.0

    # ---- messages

    def poll(self, seconds: float) -> list[StoredMessage]:
        """Some messages; an empty list if none come within `seconds`. What was given before counts as consumed with the
        next call. RemoteError as `failing_seconds` says; AddressError for a name server that is no address."""
        self._settle()
        self._at_hand = pulled = self._poll(seconds)
        if pulled is None:
            return []
        pulled.is_polled = True
        shown, context = self._give(pulled, sys.maxsize)
        self._member.end_hooks(context, ConsumeStatus.CONSUME_SUCCESS, 0.0, None)
        return shown

    def _give(self, pulled: _Pulled, most: int) -> tuple[list[StoredMessage], Any]:
        """Return up to `most` messages as the caller sees them, without a namespace, and the context of the hooks."""
        namespace, shown = self._options.namespace, list(pulled.messages[:most])
        pulled.given = len(shown)
        if namespace:
            shown = [one._replace(topic=without_namespace(namespace, one.topic)) for one in shown]
        return shown, self._member.begin_hooks(shown, pulled.queue)

    def _poll(self, seconds: float, ends: Mapping[MessageQueue, int] | None = None) -> _Pulled | None:
        """Return messages that come within `seconds`. Errors as `failing_seconds` says."""
        self._start()
        until = max(time.monotonic() + seconds, self._grace)
        while True:
            left = max(0.0, until - time.monotonic())
            pulled = self._waiting.take(min(left, _LOOK_SECONDS), ends)
            if pulled is not None:
                return pulled
            self._require()
            if not left:
                return None

    def _start(self) -> None:
        if not self._is_started:
            self._grace = time.monotonic() + _GRACE_SECONDS
            self._run()

    def _require(self) -> None:
        """Raise what keeps messages back."""
        refused = self._refused or self._rebalance.unusable
        if refused is not None:
            raise refused
        limit, since = self._options.failing_seconds, self._rebalance.incomplete_since
        if limit is not None and since is not None and time.monotonic() - since > limit:
            raise self._rebalance.problem
        self._require_pulls(refusals=True)

    def messages(self, *, to_the_end: bool, limit: int | None = None) -> Generator[StoredMessage, None, None]:
        """Message after message: as `batches`, one at a time."""
        with contextlib.closing(self.batches(1, to_the_end=to_the_end, limit=limit)) as batches:
            for (message,) in batches:
                yield message

    def batches(
        self, size: int, *, to_the_end: bool, limit: int | None = None
    ) -> Generator[list[StoredMessage], None, None]:
        """Up to `size` messages of a queue at a time: for ever, up to `limit` messages in all, or up to where the
        queues end when that is found out first.

        A batch counts as consumed when the next one is asked for, or with `commit`. Where the loop is left, by `break`
        or an exception, its messages come again.
        """
        self._settle()
        ends = self._known_ends() if to_the_end else None
        left = sys.maxsize if limit is None else limit
        try:
            while left > 0 and (self._at_hand is not None or ends is None or not self._is_consumed(ends)):
                if self._at_hand is None or self._at_hand.held.is_dropped:
                    self._at_hand = self._poll(_LOOK_SECONDS, ends)
                pulled = self._at_hand
                if pulled is None:
                    continue
                shown, context = self._give(pulled, min(size, left))
                left -= len(shown)
                status = ConsumeStatus.RECONSUME_LATER
                try:
                    yield shown
                    status = ConsumeStatus.CONSUME_SUCCESS
                finally:
                    self._member.end_hooks(context, status, 0.0, None)
                self._consumed()
        finally:
            self._settle(is_lost=True)

    def _known_ends(self) -> dict[MessageQueue, int]:
        """Wait until all queues are assigned, and return where they end."""
        self._start()
        while (ends := self._ends_now()) is None:
            self._is_shared.wait(_LOOK_SECONDS)
            self._is_shared.clear()
            self._require()
        return ends

    def _consumed(self) -> None:
        """Take what the caller has for consumed."""
        pulled = self._at_hand
        if pulled is None or not pulled.given:
            return
        given, rest = pulled.messages[: pulled.given], pulled.messages[pulled.given :]
        self._at_hand = _Pulled(pulled.queue, pulled.held, rest) if rest else None
        if not pulled.held.is_dropped:
            offset = pulled.held.remove(given)
            self._member.commit(pulled.queue, pulled.held, max(offset, self._pulls.passed(pulled.queue, pulled.held)))

    def _settle(self, *, is_lost: bool = False) -> None:
        """Let what the caller has be over: polled messages are consumed unless they are lost, others come again."""
        if self._at_hand is not None and self._at_hand.is_polled and not is_lost:
            self._consumed()
        if self._at_hand is not None:
            self._waiting.put_back(self._at_hand)
            self._at_hand = None

    # ---- offsets

    def commit(self) -> None:
        """Commit what was given up to now, and nothing that was pulled with it. RemoteError."""
        self._consumed()
        self._persist()
        for queue, offset in self.uncommitted.items():
            raise RemoteError(f"offset {offset} of {queue.topic} queue {queue.queue_id} is not committed")

    def send_back(self, message: StoredMessage, level: int = 0) -> None:
        """Have a message come again later: behind a delay that grows with each time, or of that level; among the dead
        letters with a level of -1. It comes in the group's retry topic, `%RETRY%` and the group."""
        header = headers.SendMsgBack(offset=message.physical_offset, group=self.group, delay_level=level)
        self._client.ask(self._home_of(message), RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def _home_of(self, message: StoredMessage) -> str:
        """Return the address of the broker that has a message: its physical offset means another message elsewhere."""
        route = self._client.route(self.topic)
        addresses = set(route.addresses.values()) if route is not None else set()
        stored_at = str(message.store_host)
        if stored_at in addresses or len(addresses) != 1:
            return stored_at
        return addresses.pop()

    def close(self) -> None:
        """Commit and leave the group. What cannot be committed goes to `warn` and stays in `uncommitted`."""
        self._settle()
        self._end(lambda: None)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._settle(is_lost=kind is not None)
        self.close()


__all__ = ["BrokerError", "Consumer"]
