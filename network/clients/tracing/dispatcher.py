"""Trace records on their way to the trace topic, in the background (AsyncTraceDispatcher)."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, Protocol

from rmqctl.formats import properties as names
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message
from rmqctl.formats.wording import counted
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.clients.tracing.records import TRACE_TOPIC, TraceRecord, encode, keys_of

LARGEST_BATCH = 20
LARGEST_MESSAGE = 128_000
"""Bytes of a trace message."""
# the properties of a message have to fit into 32,767 bytes
_LARGEST_KEYS = 16_000
_LARGEST_QUEUE = 2048
_FLUSH_SECONDS = 5.0
_CLOSE_SECONDS = 5.0
_SEND_MS = 5000
_INSTANCE = "PID_CLIENT_INNER_TRACE_PRODUCER"
_GROUP = "_INNER_TRACE_PRODUCER"
_numbers = itertools.count(1)


class TraceProducer(Protocol):
    """The producer that sends trace messages."""

    def start(self) -> None:
        """Start it."""

    def close(self) -> None:
        """End it."""

    def send_soon(self, message: Message) -> Future[Any]:
        """Send a message; the future has the result."""


class TraceOptions(NamedTuple):
    """Topic of traces, and the most records of a batch (traceTopic, traceMsgBatchNum)."""

    topic: str = TRACE_TOPIC
    batch: int = 10

    @classmethod
    def of(cls, settings: ProducerSettings) -> TraceOptions:
        """Return those of a producer."""
        return cls(settings.trace_topic, settings.trace_msg_batch_num)


def trace_group(group: str, kind: str) -> str:
    """Return the group of the next trace producer; `group`: whose messages are traced, `kind`: PRODUCE or CONSUME."""
    return f"{_GROUP}-{group}-{kind}-{next(_numbers)}"


def trace_settings(namesrv: str) -> ProducerSettings:
    """Return the settings of a trace producer."""
    return ProducerSettings(
        send_msg_timeout=_SEND_MS, max_message_size=LARGEST_MESSAGE, instance_name=f"{_INSTANCE}_{namesrv}"
    )


class TraceDispatcher:
    """Takes trace records and sends them in batches; nothing that a traced client does waits for it.

    A batch leaves when `options.batch` records wait (20 at most), or 5 s after the one before it. More than 2048
    waiting records are discarded. `warn` gets a line for records that are lost.
    """

    def __init__(self, make: Callable[[], TraceProducer], options: TraceOptions, warn: Callable[[str], object]) -> None:
        """`make`: called for the producer, in the dispatcher's thread, when the first batch leaves."""
        self.topic = options.topic or TRACE_TOPIC
        self.discarded = 0
        """Number of records that were discarded because too many waited."""
        self._make = make
        self._batch = max(1, min(options.batch, LARGEST_BATCH))
        self._warn = warn
        self._warned: set[str] = set()
        self._changed = threading.Condition()
        self._waiting: deque[TraceRecord] = deque()
        self._is_closing = False
        self._flushed_at = time.monotonic()
        self._producer: TraceProducer | None = None
        self._sending: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="rmqctl-trace", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def append(self, record: TraceRecord) -> bool:
        """Take a record without waiting. Return False where it is discarded."""
        with self._changed:
            if len(self._waiting) >= _LARGEST_QUEUE or self._is_closing:
                self.discarded += 1
                return False
            self._waiting.append(record)
            self._changed.notify()
            return True

    def _run(self) -> None:
        while (records := self._next_batch()) is not None:
            for data, keys in _messages(records):
                self._send(data, keys)

    def _next_batch(self) -> list[TraceRecord] | None:
        """Wait for the next batch; None when the dispatcher is closed and nothing waits."""
        with self._changed:
            while not self._is_closing and len(self._waiting) < self._batch:
                left = self._flushed_at + _FLUSH_SECONDS - time.monotonic()
                if self._waiting and left <= 0:
                    break
                self._changed.wait(left if self._waiting else None)
            if not self._waiting:
                return None
            self._flushed_at = time.monotonic()
            return [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]

    def _send(self, data: str, keys: Iterable[str]) -> None:
        message = Message(self.topic, data.encode(), properties={names.KEYS: " ".join(keys)})
        try:
            if self._producer is None:
                producer = self._make()
                producer.start()
                self._producer = producer
            sent = self._producer.send_soon(message)
        except RmqctlError as error:
            self._lost(error)
            return
        self._sending.add(sent)
        sent.add_done_callback(self._sent)

    def _sent(self, done: Future[Any]) -> None:
        self._sending.discard(done)
        error = done.exception()
        if error is not None:
            self._lost(error)

    def _lost(self, error: BaseException) -> None:
        line = f"trace records for topic {self.topic!r} are lost: {getattr(error, 'message', error)}"
        if line not in self._warned:
            self._warned.add(line)
            self._warn(line)

    def close(self) -> None:
        """Send what waits, for 5 s at most, and end."""
        until = time.monotonic() + _CLOSE_SECONDS
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        wait(list(self._sending), max(0.0, until - time.monotonic()))
        left = len(self._waiting)
        if left or self.discarded:
            self._warn(f"{counted(left + self.discarded, 'trace record was', 'trace records were')} not sent")
        if self._producer is not None:
            self._producer.close()


def _messages(records: Iterable[TraceRecord]) -> Iterator[tuple[str, list[str]]]:
    """Yield body and keys of the trace messages for a batch: one for each topic, unless that is too large."""
    by_topic: dict[str | None, list[TraceRecord]] = {}
    for record in records:
        if record.beans and record.region is not None:
            by_topic.setdefault(record.beans[0].topic, []).append(record)
    for of_topic in by_topic.values():
        text, keys = "", dict[str, None]()
        for record in of_topic:
            more, more_keys = encode(record), keys_of(record)
            is_full = len((text + more).encode()) > LARGEST_MESSAGE or _size([*keys, *more_keys]) > _LARGEST_KEYS
            if text and is_full:
                yield text, list(keys)
                text, keys = "", {}
            text += more
            keys |= dict.fromkeys(more_keys)
        yield text, list(keys)


def _size(keys: Iterable[str]) -> int:
    return sum(len(key.encode()) + 1 for key in keys)
