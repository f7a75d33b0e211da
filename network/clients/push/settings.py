"""Settings of a push consumer, with RocketMQ's defaults and limits (DefaultMQPushConsumer)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import StoredMessage
from rmqctl.network.remoting.codec import MessageQueue

_UNSET = -1
INT_MAX = (1 << 31) - 1
# DefaultMQPushConsumerImpl#checkConfig, with RocketMQ's names; -1 means "not set" where it is allowed
_LIMITS: dict[str, tuple[str, int, int, bool]] = {
    "threads": ("consumeThreadMax", 1, 1000, False),
    "concurrent_max_span": ("consumeConcurrentlyMaxSpan", 1, 65535, False),
    "pull_threshold_for_queue": ("pullThresholdForQueue", 1, 65535, False),
    "pull_threshold_for_topic": ("pullThresholdForTopic", 1, 6553500, True),
    "pull_threshold_size_for_queue": ("pullThresholdSizeForQueue", 1, 1024, False),
    "pull_threshold_size_for_topic": ("pullThresholdSizeForTopic", 1, 102400, True),
    "batch_size": ("consumeMessageBatchMaxSize", 1, 1024, False),
    "pull_batch_size": ("pullBatchSize", 1, 1024, False),
    "max_reconsume_times": ("maxReconsumeTimes", 0, INT_MAX, True),
}
_LONGEST_PULL_INTERVAL = 65.535


@dataclass(frozen=True)
class PushSettings:
    """Settings of a push consumer. Times are seconds.

    Names in RocketMQ: `threads` consumeThreadMax, `batch_size` consumeMessageBatchMaxSize, `consume_timeout`
    consumeTimeout, `suspend_seconds` suspendCurrentQueueTimeMillis, `pull_threshold_size_…` in MiB. -1 of
    `max_reconsume_times`: the group's own maximum, without end in order. Java retries a failed send-back after
    `retry_seconds` and reads a newly assigned queue after `first_pull_seconds`.
    """

    threads: int = 20
    batch_size: int = 1
    consume_timeout: float = 900.0
    max_reconsume_times: int = _UNSET
    suspend_seconds: float = 1.0
    concurrent_max_span: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_for_topic: int = _UNSET
    pull_threshold_size_for_queue: int = 100
    pull_threshold_size_for_topic: int = _UNSET
    pull_batch_size: int = 32
    pull_interval: float = 0.0
    persist_seconds: float = 5.0
    rebalance_seconds: float = 20.0
    first_pull_seconds: float = 0.5
    retry_seconds: float = 5.0
    error_seconds: float = 3.0
    close_seconds: float = 30.0
    """Time that `close` waits for running callbacks. RocketMQ waits 0 s by default."""
    enable_trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    trace_msg_batch_num: int = 10
    limit: int | None = None
    """Messages handed to the callback in all; None: no limit."""

    def __post_init__(self) -> None:
        """Raise UsageError for a value that RocketMQ refuses."""
        for name, (java_name, least, most, may_be_unset) in _LIMITS.items():
            value = getattr(self, name)
            if not (least <= value <= most or (may_be_unset and value == _UNSET)):
                raise UsageError(f"{java_name} Out of range [{least}, {most}]: {name} is {value}")
        if not 0 <= self.pull_interval <= _LONGEST_PULL_INTERVAL:
            raise UsageError(f"pullInterval Out of range [0, 65535]: pull_interval is {self.pull_interval} s")
        for one in fields(self):
            length: Any = getattr(self, one.name)
            if isinstance(length, float) and not 0 <= length < float("inf"):
                raise UsageError(f"{one.name} is {length}: not a length of time")
        if not self.consume_timeout:
            raise UsageError("consume_timeout must be more than 0 seconds")

    def queue_limits(self, queues: int) -> tuple[int, int]:
        """Return the number of messages and of MiB that one of `queues` assigned queues may hold in memory."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue
        if queues and self.pull_threshold_for_topic != _UNSET:
            count = max(1, self.pull_threshold_for_topic // queues)
        if queues and self.pull_threshold_size_for_topic != _UNSET:
            size = max(1, self.pull_threshold_size_for_topic // queues)
        return count, size

    def max_retries(self, *, is_orderly: bool) -> int:
        """Return the number of retries before a message is a dead letter, as sent to brokers."""
        if self.max_reconsume_times != _UNSET:
            return self.max_reconsume_times
        return INT_MAX if is_orderly else 16


# Verdicts of callbacks and the contexts handed to them (MessageListenerConcurrently, MessageListenerOrderly).


class ConsumeStatus(Enum):
    """Verdict on messages that are consumed concurrently."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class OrderlyStatus(Enum):
    """Verdict on messages consumed in order. COMMIT and ROLLBACK are for callbacks without automatic commit."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


@dataclass
class ConsumeContext:
    """Context of a batch. The callback may set the rest.

    `delay_level`: 0 for the broker's 3 + n, -1 for the dead letters, or a delay level. `acknowledged`: number of
    messages from the start of the batch that CONSUME_SUCCESS acknowledges, None for all.
    """

    queue: MessageQueue
    delay_level: int = 0
    acknowledged: int | None = None


@dataclass
class OrderlyContext:
    """Context of a batch in order. `suspend_seconds`: pause before the next attempt, None: the consumer's."""

    queue: MessageQueue
    auto_commit: bool = True
    suspend_seconds: float | None = None


ConcurrentListener = Callable[[Sequence[StoredMessage], ConsumeContext], ConsumeStatus | None]
"""Consumes a batch in one of several threads. Everything but CONSUME_SUCCESS, exceptions included, is a retry."""

OrderlyListener = Callable[[Sequence[StoredMessage], OrderlyContext], OrderlyStatus | None]
"""Consumes a batch; one call at a time for each queue, in the order of the queue."""


# Figures of a push consumer by topic: pulls and consumption over the last minute (ConsumerStatsManager).

_MINUTE, _HOUR = 60, 3600


class ConsumeFigures:
    """Counts by topic and second. Safe for threads. `clock`: monotonic, in s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pulls: dict[str, _Window] = defaultdict(_Window)
        self._callbacks: dict[str, _Window] = defaultdict(_Window)
        self._good: dict[str, _Window] = defaultdict(_Window)
        self._failed: dict[str, _Window] = defaultdict(_Window)

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """Count a pull that brought messages."""
        with self._lock:
            self._pulls[topic].add(self._clock(), messages, seconds)

    def consumed(self, topic: str, good: int, failed: int, seconds: float) -> None:
        """Count a callback: its time, and the messages that it consumed or failed to consume."""
        now = self._clock()
        with self._lock:
            self._callbacks[topic].add(now, 1, seconds)
            self._good[topic].add(now, good, 0.0)
            self._failed[topic].add(now, failed, 0.0)

    def status(self, topic: str) -> dict[str, float]:
        """Return the figures of a topic (ConsumeStatus): times in ms for each pull and callback, messages a second."""
        now = self._clock()
        with self._lock:
            pulls, pulled, pull_seconds = self._pulls[topic].last(now, _MINUTE)
            callbacks, _, seconds = self._callbacks[topic].last(now, _MINUTE)
            good, failed = self._good[topic].last(now, _MINUTE)[1], self._failed[topic].last(now, _MINUTE)[1]
            lost = self._failed[topic].last(now, _HOUR)[1]
        return {
            "consumeFailedMsgs": lost,
            "consumeFailedTPS": failed / _MINUTE,
            "consumeOKTPS": good / _MINUTE,
            "consumeRT": 1000 * seconds / callbacks if callbacks else 0.0,
            "pullRT": 1000 * pull_seconds / pulls if pulls else 0.0,
            "pullTPS": pulled / _MINUTE,
        }


class _Window:
    """Events of the last hour: for each second how many there were, their counts and their seconds."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, int, int, float]] = deque()

    def add(self, now: float, count: int, seconds: float) -> None:
        at = int(now)
        events = 1
        if self._slots and self._slots[-1][0] == at:
            _, more_events, more, longer = self._slots.pop()
            events, count, seconds = events + more_events, count + more, seconds + longer
        self._slots.append((at, events, count, seconds))
        while self._slots[0][0] <= at - _HOUR:
            self._slots.popleft()

    def last(self, now: float, seconds: int) -> tuple[int, int, float]:
        found = [one for one in self._slots if one[0] > now - seconds]
        return sum(one[1] for one in found), sum(one[2] for one in found), sum(one[3] for one in found)
