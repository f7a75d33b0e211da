"""Settings of a push consumer, with RocketMQ's defaults and limits (DefaultMQPushConsumer)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from rmqctl.formats.errors import UsageError

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
        """Return the number of retries before a message is a dead letter, as brokers are told it."""
        if self.max_reconsume_times != _UNSET:
            return self.max_reconsume_times
        return INT_MAX if is_orderly else 16
