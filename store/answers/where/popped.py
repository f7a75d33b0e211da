"""Whether a group takes its messages by POP, and what the store says of one that was handed out to it.

The offset of such a group is what was handed out, not what it is done with. A broker settles most of that in its
memory; what it writes down are checkpoints (what was handed out) and acknowledgements, in rmq_sys_REVIVE_LOG_*, to
which the checkpoints come by way of the timer (PopBufferMergeService, PopReviveService). Those behind the offset of
the revive group are not settled: it is the last record that is, where those of other groups are the next to read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.errors import (
    CorruptError,
    NotFoundError,
    RmqctlError,
    UnsupportedError,
    UsageError,
)
from rmqctl.formats.hashing import parse_long
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.wording import format_time
from rmqctl.store.answers.config_offsets import table_in
from rmqctl.store.answers.dead_letters import RETRY_PREFIX, pop_retry_topics
from rmqctl.store.answers.timed import waiting_for
from rmqctl.store.files.presence import exists
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.selection import OnDamage

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
_ORDER_FILE = "consumerOrderInfo.json"
_KV_FOLDER = "kvStore"
_CHECKPOINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"

# the number of messages in a PopCheckPoint is a byte of Java's
_MOST_AT_ONCE = 127
# names that fields had before they were shortened (AckMsg, BatchAckMsg, PopCheckPoint); Java reads both
_LONG_NAMES = {
    "aol": "ackOffsetList",
    "ao": "ackOffset",
    "so": "startOffset",
    "c": "consumerGroup",
    "t": "topic",
    "q": "queueId",
    "pt": "popTime",
    "it": "invisibleTime",
    "bm": "bitMap",
    "n": "num",
    "d": "queueOffsetDiff",
}
_REQUIRED = object()

ACKNOWLEDGED = "acknowledged"
POPPED = "popped"
IN_FLIGHT = "in-flight"
UNACKNOWLEDGED = "unacknowledged"

ReadsNext = Callable[[str, str, int], int | None]
"""What a group (first) reads next in a topic's queue; None where that is not kept."""


class _Popped(NamedTuple):
    """What was handed out at once (PopCheckPoint): queue offsets of a topic's queue, from when until when (ms), and
    where that is written."""

    group: str
    topic: str
    queue_id: int
    offsets: frozenset[int]
    popped_at: int
    visible_again: int
    place: str

    def hands_out(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether that message is among them."""
        return (self.group, self.topic, self.queue_id) == (group, topic, queue_id) and queue_offset in self.offsets


class Popping:
    """All that the store says of POP, read when it is first asked for."""

    def __init__(
        self,
        reader: StoreReader,
        modes: Mapping[Any, Any],
        groups: set[str],
        reads_next: ReadsNext,
        now: int,
        on_damage: OnDamage,
    ) -> None:
        """`modes`: of messageRequestMode.json; `groups`: known by name; `now` in ms."""
        self._reader = reader
        self._modes = modes
        self._groups = groups
        self._reads_next = reads_next
        self._now = now
        self._on_damage = on_damage
        self._ordered: Mapping[Any, Any] | None = None
        self._popped: list[_Popped] | None = None
        # by group, topic, queue id and queue offset: when what is acknowledged was handed out
        self._acknowledged: dict[tuple[str, str, int, int], set[int]] = {}

    def evidence(self, group: str, topic: str) -> str | None:
        """What in the store shows that the group takes the topic by POP; None where nothing does."""
        by_group = self._modes.get(topic)
        mode = by_group.get(group) if isinstance(by_group, Mapping) else None
        if isinstance(mode, Mapping):  # the broker was told so (setConsumeMode)
            return "messageRequestMode.json says so" if mode.get("mode") == "POP" else None
        if topic.startswith(pop_retry_topics(group)):
            return "only POP has a retry topic for each topic"
        for retries in pop_retry_topics(group, topic):
            with contextlib.suppress(UsageError, UnsupportedError):
                # a group may bear that name
                is_group = retries.removeprefix(RETRY_PREFIX) in self._groups
                if not is_group and self._reader.files.queues.find(retries, 0) is not None:
                    return f"it has the retry topic {retries}"
        for popped in self._all():
            if (popped.group, popped.topic) == (group, topic):
                return f"{popped.place} is a checkpoint of it"
        return None

    def said(self, group: str, topic: str, queue_id: int, queue_offset: int) -> tuple[str, str]:
        """Whether the group has acknowledged what was handed out to it, POPPED where that is not known, and why.

        An acknowledgement is of one handing out: who asks for more time acknowledges it, and is handed the message out
        anew (ChangeInvisibleTimeProcessor).
        """
        place = (group, topic, queue_id, queue_offset)
        every = [one for one in self._all() if one.hands_out(*place)]
        acknowledged = self._acknowledged.get(place, set())
        still = [one for one in every if one.popped_at not in acknowledged]
        if still:
            last = max(still, key=lambda one: one.visible_again)
            until = format_time(last.visible_again)
            if last.visible_again > self._now:
                said = f"{last.place} says that it is in flight until {until}, and no acknowledgement is stored"
                return IN_FLIGHT, said
            said = f"{last.place} says until {until}, no acknowledgement is stored, and the broker makes a retry of it"
            return UNACKNOWLEDGED, said
        if acknowledged:
            return ACKNOWLEDGED, "and an acknowledgement of it is stored"
        if exists(self._reader.files.root / _KV_FOLDER):
            return POPPED, f"and {_KV_FOLDER}/, a RocksDB that is not read, may keep whether it is acknowledged"
        return POPPED, "and no checkpoint that is left names it: acknowledged, or to come again as a retry"

    def said_in_order(self, group: str, topic: str, queue_id: int, queue_offset: int) -> tuple[str, str] | None:
        """Return what consumerOrderInfo.json says of a message of the queue's last ordered pop, as `said` does; None
        for any other message. Such a pop has no checkpoint, and the group's offset moves with the acknowledgements
        (ConsumerOrderInfoManager)."""
        if self._ordered is None:
            self._ordered = self._order_info()
        by_queue = self._ordered.get(f"{topic}@{group}")
        last = by_queue.get(queue_id) if isinstance(by_queue, Mapping) else None
        if last is None:
            return None
        try:
            first, *distances = (_long(number) for number in last["o"])
            number = [first, *(first + distance for distance in distances)].index(queue_offset)
            until = _long((last.get("ot") or {}).get(queue_offset, _long(last["popTime"]) + _long(last["i"])))
            acknowledged = _long(last.get("cm") or 0) >> number & 1
        except (ValueError, TypeError, KeyError, AttributeError):  # another message, or nothing of a broker's
            return None
        if acknowledged:
            return ACKNOWLEDGED, f"and {_ORDER_FILE} says that it is acknowledged"
        if until > self._now:
            return IN_FLIGHT, f"{_ORDER_FILE} says that it is in flight until {format_time(until)}"
        return UNACKNOWLEDGED, f"{_ORDER_FILE} says that it was in flight until {format_time(until)}, not acknowledged"

    def _order_info(self) -> Mapping[Any, Any]:
        path = self._reader.files.layout.config / _ORDER_FILE
        return table_in(path, "table", lambda _: None, self._on_damage) or {}

    def _all(self) -> list[_Popped]:
        if self._popped is None:
            self._popped = []
            with contextlib.suppress(UnsupportedError):  # queues in a RocksDB
                for message in self._unsettled():
                    try:
                        self._take(message)
                    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, RmqctlError):
                        where = f"{message.topic} {message.queue_id} {message.queue_offset}"
                        said = f"{where} is no checkpoint and no acknowledgement of POP"
                        self._on_damage(CorruptError(said, physical_offset=message.physical_offset))
        return self._popped

    def _unsettled(self) -> Iterator[StoredMessage]:
        queues = self._reader.files.queues.of_topics(lambda topic: topic.startswith(REVIVE_PREFIX))
        if not queues:
            return
        for queue in queues:
            begin = queue.min_offset(self._reader.files.log.min_offset)
            settled = self._reads_next(REVIVE_GROUP, queue.topic, queue.queue_id)
            reached = 0 if settled is None else settled + 1
            view = self._reader.view_without_ext(queue)
            for unit in queue.units(max(begin, reached), queue.max_offset):
                try:
                    yield view.message_of(unit)
                except NotFoundError:  # removed by a cleaner while we looked
                    continue
                except CorruptError as error:
                    self._on_damage(error)
        yield from waiting_for(self._reader, lambda topic: topic.startswith(REVIVE_PREFIX), self._on_damage)

    def _take(self, message: StoredMessage) -> None:
        kind = message.properties().get(names.TAGS)
        if kind not in (_CHECKPOINT, _ACK, _BATCH_ACK):
            return
        body = json.loads(message.plain_body())
        group, topic, queue_id = str(_field(body, "c")), str(_field(body, "t")), int(_field(body, "q"))
        popped_at = int(_field(body, "pt"))
        if kind != _CHECKPOINT:
            for offset in _field(body, "aol") if kind == _BATCH_ACK else [_field(body, "ao")]:
                place = (group, topic, queue_id, int(offset))
                self._acknowledged.setdefault(place, set()).add(popped_at)
            return
        start, count, settled = int(_field(body, "so")), int(_field(body, "n")), int(_field(body, "bm", 0))
        if not 0 <= count <= _MOST_AT_ONCE:
            raise ValueError(count)
        steps = _field(body, "d", None) or range(count)
        assert self._popped is not None
        written = f"{message.topic} {message.queue_id} {message.queue_offset}"
        visible_again = popped_at + int(_field(body, "it"))
        handed = [start + int(step) for step in steps]
        for number, offset in enumerate(handed):
            if settled >> number & 1:  # acknowledged in memory before the checkpoint was stored
                self._acknowledged.setdefault((group, topic, queue_id, offset), set()).add(popped_at)
        self._popped.append(_Popped(group, topic, queue_id, frozenset(handed), popped_at, visible_again, written))


def _field(body: Mapping[str, Any], name: str, missing: Any = _REQUIRED) -> Any:
    """Return the field `name` of a record of POP, which may have its old long name. KeyError where it is required."""
    value = body.get(name, body.get(_LONG_NAMES[name], missing))
    if value is _REQUIRED:
        raise KeyError(name)
    return value


def _long(value: Any) -> int:
    """Return a number in a file of fastjson's, which takes it in quotes as well. ValueError for anything else."""
    number = parse_long(value.replace(",", "")) if isinstance(value, str) else int(value)
    if number is None:
        raise ValueError(f"{value!r} is no long")
    return number
