"""Verdicts of callbacks and the contexts handed to them (MessageListenerConcurrently, MessageListenerOrderly)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from rmqctl.formats.message import StoredMessage
from rmqctl.network.remoting.fastjson import MessageQueue


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
