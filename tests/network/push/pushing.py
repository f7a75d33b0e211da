"""Push consumers on a broker in this process, and waits that a busy machine does not break."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import (
    ConsumeContext,
    ConsumeStatus,
    OrderlyContext,
    OrderlyStatus,
    PushSettings,
)
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.serving import LocalBroker

LIMIT = 60.0


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait until it is so; fail after a minute."""
    until = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


class Seen:
    """A callback of either kind that keeps what it gets, and does as `verdict` says (None: success)."""

    def __init__(self, verdict: Callable[[StoredMessage], Any] = lambda message: None) -> None:
        self.messages: list[StoredMessage] = []
        self.sizes: list[int] = []
        self._verdict = verdict
        self._lock = threading.Lock()

    @property
    def bodies(self) -> list[str]:
        """Bodies in the order in which they came."""
        return [one.body.decode() for one in self.messages]

    def concurrently(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeStatus | None:
        """Retries come after 1 s."""
        context.delay_level = 1
        return self._took(messages, ConsumeStatus.CONSUME_SUCCESS)  # type: ignore[no-any-return]

    def in_order(self, messages: Sequence[StoredMessage], context: OrderlyContext) -> OrderlyStatus | None:
        """See there."""
        return self._took(messages, OrderlyStatus.SUCCESS)  # type: ignore[no-any-return]

    def _took(self, messages: Sequence[StoredMessage], success: Any) -> Any:
        with self._lock:
            self.messages += messages
            self.sizes.append(len(messages))
        verdicts = [self._verdict(one) for one in messages]
        return next((one for one in verdicts if one is not None), success)


class Pushing:
    """Push consumers and messages on one broker. `said`: warnings of the consumers."""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        self.said: list[str] = []

    def send(self, topic: str, *bodies: str, queue: int | None = None, tags: str = "") -> None:
        """Send messages, to one queue or to all in turn."""
        properties = {"TAGS": tags} if tags else {}
        with Producer(self.local.namesrv, dial=self.local.dial) as producer:
            queues = producer.queues(topic)
            for body in bodies:
                message = Message(topic, body.encode(), properties=properties)
                producer.send(message, None if queue is None else queues[queue])
        self.local.broker.store.wait_for_dispatch()

    def consumer(
        self, group: str, topic: str, seen: Seen, *, tags: str = "*", in_order: bool = False, **more: Any
    ) -> PushConsumer:
        """A consumer that begins at the first message and shares out at once; `more`: settings and options."""
        settings = {name: more.pop(name) for name in list(more) if name in PushSettings.__dataclass_fields__}
        options: dict[str, Any] = {"begin": "first", "dial": self.local.dial, "warn": self.said.append} | more
        return PushConsumer(
            self.local.namesrv, group, {topic: tags},
            None if in_order else seen.concurrently, on_ordered=seen.in_order if in_order else None,
            settings=PushSettings(**({"first_pull_seconds": 0.0, "rebalance_seconds": 3600.0} | settings)),
            options=MemberOptions(**options),
        )  # fmt: skip

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """What the broker has in a queue now."""
        store = self.local.broker.store
        store.wait_for_dispatch()
        try:
            return list(store.get(topic, queue_id, 0, 32).messages)
        except LookupError:
            return []

    def committed(self, group: str, topic: str, queue_id: int = 0) -> int | None:
        """The offset of a group at the broker."""
        return self.local.broker.offsets.find(group, topic, queue_id)


def refuse(consumer: PushConsumer, *codes: RequestCode) -> None:
    """Have these requests of a consumer fail from now on, as if the broker did not answer."""
    from rmqctl.formats.errors import RemoteError

    ask = consumer._client.ask

    def refusing(address: str, code: int, *arguments: Any, **more: Any) -> Any:
        if code in codes:
            raise RemoteError(f"no answer to {code}")
        return ask(address, code, *arguments, **more)

    consumer._client.ask = refusing  # type: ignore[method-assign]
