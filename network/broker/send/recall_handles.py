"""Handles by which producers take timed messages back (RecallMessageHandle)."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.message import Message
from rmqctl.network.broker.writable_broker import WritableBroker
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.services import RequestError
from rmqctl.store.answers.dead_letters import RETRY_PREFIX
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.frames import message_at
from rmqctl.store.write.result import PutResult

_VERSION = "v1"
_PARTS = 5


class RecallHandle(NamedTuple):
    """What a handle says (RecallMessageHandle.HandleV1). `timestamp`: ms, as a text."""

    topic: str
    broker: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        """Return the handle as clients have it."""
        text = " ".join((_VERSION, *self))
        return base64.urlsafe_b64encode(text.encode("utf-8")).decode("ascii")


def parse_handle(text: str) -> RecallHandle:
    """Return what a handle says; RequestError for a text that is none."""
    try:
        padded = text + "=" * (-len(text) % 4)
        version, *parts = base64.b64decode(padded, b"-_", validate=True).decode("utf-8").split(" ")
    except (binascii.Error, ValueError):
        version, parts = "", []
    if version != _VERSION or len(parts) < _PARTS - 1:
        raise RequestError(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return RecallHandle(*parts[: _PARTS - 1])


def handle_of(broker: WritableBroker, message: Message, result: PutResult) -> str | None:
    """Return the handle of a message that was just put; None for one that waits for no time."""
    has_time = any(name in message.properties for name in names.TIMER_PROPERTIES)
    if not has_time or result.physical_offset is None or message.topic.startswith(RETRY_PREFIX):
        return None
    try:
        stored = message_at(broker.files.log, result.physical_offset)
    except (CorruptError, NotFoundError):
        return None
    due = stored.properties().get(names.TIMER_OUT_MS, "")
    if stored.topic != TIMER_TOPIC or not due.isdecimal():
        return None
    # the time is cut to whole seconds from one millisecond before it
    key = message.properties.get(names.UNIQUE_KEY, "")
    return RecallHandle(message.topic, broker.identity.name, str(int(due) + 1), key).encode()
