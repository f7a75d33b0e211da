"""What is said of one message: a verdict, and the evidence for it in the order in which a message lives."""

from __future__ import annotations

import enum
from typing import NamedTuple

from rmqctl.formats.message import StoredMessage


class Stage(enum.StrEnum):
    """What a step of the evidence is about, in their order."""

    STORED = "stored"
    QUEUE = "queue"
    INDEX = "index"
    DELAY = "delay"
    HALF = "half"
    GROUP = "group"
    FILTER = "filter"
    RETRY = "retry"
    DEAD = "dead"
    EXPIRY = "expiry"


class Verdict(enum.StrEnum):
    """What a message's whereabouts come to; the gravest thing of those that apply comes first here."""

    DAMAGED = "damaged"
    EXPIRED = "expired"
    ABSENT = "absent"
    NO_SLOT = "no-slot"
    PENDING = "pending"
    ROLLED_BACK = "rolled-back"
    GAVE_UP = "gave-up"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    NOT_DELIVERED = "not-delivered"
    OVERDUE = "overdue"
    DEAD = "dead"
    RETRYING = "retrying"
    BLOCKED = "blocked"
    UNREAD = "unread"
    UNKNOWN = "unknown"
    FILTERED = "filtered"
    READ = "read"
    STORED = "stored"


class Step(NamedTuple):
    """One piece of evidence. `state` is a word of its stage (docs/commands.md), `detail` says it to people.

    `timestamp` (ms) is that of what the step tells: stored, due, given up, expires. `group_offset` is the queue offset
    that a group reads next, and `distance` how far the message lies behind it: so many messages come first, and a
    negative number is how far the group is past it. None is what does not apply, or is not known.
    """

    stage: Stage
    state: str
    detail: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    timestamp: int | None = None
    group: str | None = None
    group_offset: int | None = None
    distance: int | None = None


class GroupVerdict(NamedTuple):
    """What one group has made of the message."""

    group: str
    state: Verdict
    detail: str


class Whereabouts(NamedTuple):
    """One message. `found_by` says what `asked` turned out to be; None where nothing was found. What names the message
    is None where it cannot be read; `groups` and `evidence` may say something all the same."""

    asked: str
    found_by: str | None
    state: Verdict
    sentence: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    msg_id: str | None = None
    unique_key: str | None = None
    keys: str | None = None
    tags: str | None = None
    store_timestamp: int | None = None
    groups: tuple[GroupVerdict, ...] = ()
    evidence: tuple[Step, ...] = ()


def step_at(stage: Stage, state: str, detail: str, message: StoredMessage) -> Step:
    """A step about a message that is stored, with its place and store time."""
    place = (message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.store_timestamp)
    return Step(stage, state, detail, *place)


def place_of(message: StoredMessage) -> str:
    """`topic queue offset`, as `rmqctl where` takes it."""
    return f"{message.topic} {message.queue_id} {message.queue_offset}"
