"""Which half messages have no end yet; their producers are asked for it (TransactionalMessageServiceImpl#check)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import whole_number
from rmqctl.formats.errors import CorruptError, NotFoundError, UsageError, WriteFailedError
from rmqctl.formats.layouts import TRANSACTION_MASK
from rmqctl.formats.message import Message, StoredMessage, frame_bytes, prepare_frame
from rmqctl.formats.properties import TRANSACTION_COMMIT, encode_properties, in_java_order
from rmqctl.network.broker.broker import WritableBroker
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.headers import CheckTransactionState, request
from rmqctl.store.answers import undispatched as half_topics
from rmqctl.store.answers.transactions import why_given_up
from rmqctl.store.answers.undispatched import CHECK_TIMES, GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqctl.store.write.put import PutResult

# Half messages: how they are kept, committed, ended and copied (TransactionalMessageBridge).

TRANSACTION = "TRAN_MSG"
_TRANSACTION_ID = "__transactionId__"
_ENDED_TAG = "d"


def as_half(message: Message) -> Message:
    """`message` as it waits for the end of its transaction (parseHalfMessageInner), without a delay."""
    properties = {name: value for name, value in message.properties.items() if name != names.DELAY}
    properties[_TRANSACTION_ID] = properties[names.UNIQUE_KEY]
    properties[names.REAL_TOPIC] = message.topic
    properties[names.REAL_QUEUE_ID] = str(message.queue_id)
    return message._replace(
        topic=HALF_TOPIC, queue_id=0, properties=properties, sys_flag=message.sys_flag & ~TRANSACTION_MASK
    )


def committed(half: StoredMessage, topic: str, queue_id: int) -> Message:
    """The message of a half one that is committed: its properties stay as they are (endMessageTransaction)."""
    return _copy(half)._replace(
        topic=topic,
        queue_id=queue_id,
        property_bytes=half.property_bytes,
        store_host=half.store_host,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
        prepared_transaction_offset=half.physical_offset,
    )


def ended(queue_offsets: Iterable[int]) -> Message:
    """What says in the op topic that the half messages at these queue offsets have come to their end."""
    properties = in_java_order({names.TAGS: _ENDED_TAG, names.WAIT: "true"}, 16)
    return Message(OP_TOPIC, "".join(f"{offset}," for offset in queue_offsets).encode("ascii"), properties=properties)


def asked_about(half: StoredMessage, times: int) -> Message:
    """The copy of a half message that takes its place when its producer is asked for the `times`th time
    (renewHalfMessageInner)."""
    properties = {**half.properties(), CHECK_TIMES: str(times), names.WAIT: "false"}
    return _copy(half)._replace(topic=HALF_TOPIC, queue_id=half.queue_id, properties=in_java_order(properties))


def given_up(half: StoredMessage) -> Message:
    """A half message whose producer was asked often enough (toMessageExtBrokerInner)."""
    return _copy(half)._replace(topic=GIVEN_UP_TOPIC, queue_id=0, property_bytes=half.property_bytes)


def _copy(half: StoredMessage) -> Message:
    return Message(
        half.topic,
        half.body,
        flag=half.flag,
        properties=half.properties(),
        sys_flag=half.sys_flag & ~TRANSACTION_MASK,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        reconsume_times=half.reconsume_times,
    )


# half messages looked at in one step: clients must not wait for a long list
_MOST_AT_ONCE = 100
# those that have their end are passed so many at a time
_PASSED_AT_ONCE = 10_000


class OpenTransactions:
    """The half queue from the first half message without an end on, and which of those behind it have one.

    Its progress is among the consumer offsets, under a group of the broker's own, and ends are in the op topic: so a
    restart continues. A half message whose producer was asked is copied behind the others, and the copy takes its
    place.
    """

    def __init__(self, broker: WritableBroker) -> None:
        self._broker = broker
        self._half = self._stored_offset(half_topics.HALF_TOPIC)
        self._op = self._stored_offset(half_topics.OP_TOPIC)
        # queue offsets of half messages from there on: those that need no more looks, and among them those that ended
        self._dealt_with: set[int] = set()
        self._ended: set[int] = set()
        # the copy that took a half message's place
        self._copies: dict[int, int] = {}
        # what ended half messages, in the op topic's order
        self._ops: deque[tuple[int, list[int]]] = deque()
        self._begun = broker.elapsed()
        self._rounds = self._forever()
        self._turn = 0
        self._read_ops()

    def _stored_offset(self, topic: str) -> int:
        first, end = self._broker.bounds(topic, 0)
        return min(max(self._broker.offsets.find(half_topics.GROUP, topic, 0) or 0, first), end)

    def _read_ops(self) -> None:
        view = self._broker.view(half_topics.OP_TOPIC, 0)
        if view is None:
            return
        for unit in view.queue.units(self._op, view.queue.max_offset):
            try:
                offsets = half_topics.ended_offsets(view.message_of(unit).body)
            except (CorruptError, NotFoundError) as error:
                self._broker.tell(f"ends of transactions are not known, their producers will be asked: {error}")
                offsets = []
            self._note_end(unit.queue_offset, offsets)

    def _note_end(self, op_offset: int, offsets: list[int]) -> None:
        self._ops.append((op_offset, offsets))
        open_ones = {offset for offset in offsets if offset >= self._half}
        self._ended |= open_ones
        self._dealt_with |= open_ones

    def is_ended(self, queue_offset: int) -> bool:
        """Whether a half message is known to have its end."""
        return queue_offset in self._ended

    def end(self, queue_offset: int) -> PutResult:
        """A half message has come to its end, and with it the copy that took its place; what the put of the mark gave.
        Errors of the store are raised."""
        offsets = [queue_offset]
        while offsets[-1] in self._copies:
            offsets.append(self._copies.pop(offsets[-1]))
        result = self._broker.put([ended(offsets)]).results[0]
        if result.status.is_stored and result.queue_offset is not None:
            self._note_end(result.queue_offset, offsets)
        return result

    # ---- rounds

    def step(self, now: int) -> None:
        """A part of a round, if it is time for one (ms)."""
        next(self._rounds)

    def _forever(self) -> Iterator[None]:
        elapsed, interval = self._broker.elapsed, self._broker.settings.transaction_check_interval
        while True:
            while elapsed() - self._begun < interval:
                yield
            self._begun = elapsed()
            yield from self._round(self._broker.clock())
            yield from self._advance()

    def _round(self, begun: int) -> Iterator[None]:
        """Look at every half message without an end that was there when the round began, at `begun` by the clock."""
        end = self._broker.bounds(half_topics.HALF_TOPIC, 0)[1]
        view = self._broker.view(half_topics.HALF_TOPIC, 0)
        if view is None:
            return
        looked_at = 0
        for offset in range(self._half, end):
            if (offset - self._half + 1) % _PASSED_AT_ONCE == 0 or looked_at == _MOST_AT_ONCE:
                looked_at = 0
                yield
            if offset in self._dealt_with:
                continue
            looked_at += 1
            unit = view.queue.unit(offset)
            try:
                if unit is None or self._look_at(view.message_of(unit), begun):
                    self._dealt_with.add(offset)
            except (CorruptError, NotFoundError) as error:
                self._broker.tell_once((half_topics.HALF_TOPIC, offset), f"a half message is passed over: {error}")
                self._dealt_with.add(offset)
            except (UsageError, WriteFailedError) as error:
                self._broker.tell_once((half_topics.HALF_TOPIC, -1), f"producers are not asked for now: {error}")
                return

    def _look_at(self, half: StoredMessage, now: int) -> bool:
        """Ask for the end of a half message if it is time to; whether it is dealt with."""
        settings, properties = self._broker.settings, half.properties()
        times = whole_number(properties.get(half_topics.CHECK_TIMES, "0")) or 0
        age = now - half.born_timestamp
        # the setting may be changed while the broker runs
        config = self._broker.files.config._replace(transaction_check_max=settings.transaction_check_max)
        if why_given_up(age, times, config) is not None:
            self._broker.create_topic(half_topics.GIVEN_UP_TOPIC, 1)
            return self._is_put(given_up(half)) is not None
        immunity = settings.transaction_time_out
        if half_topics.IMMUNITY in properties:
            seconds = whole_number(properties[half_topics.IMMUNITY])
            immunity = settings.transaction_time_out if seconds is None else seconds * 1000
        if 0 <= age < immunity:
            return False
        copy = asked_about(half, times + 1)
        result = self._is_put(copy)
        if result is None:
            return False
        if result.queue_offset is not None:
            self._copies[half.queue_offset] = result.queue_offset
        self._ask(copy, result, now)
        return True

    def _is_put(self, message: Message) -> PutResult | None:
        result = self._broker.put([message]).results[0]
        if result.status.is_stored:
            return result
        self._broker.tell_once((message.topic, -1), f"{message.topic}: {result.status}: {result.detail}")
        return None

    def _ask(self, half: Message, result: PutResult, now: int) -> None:
        """Ask one producer of the message's group, if there is any (AbstractTransactionalMessageCheckListener)."""
        properties = half.properties
        producers = list(self._broker.clients.producers(properties.get(half_topics.PRODUCER_GROUP, "")))
        topic, queue_id = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QUEUE_ID, "0")
        if not producers or topic is None or result.store_host is None:
            return
        self._turn += 1
        stored = encode_properties(properties)
        original = half._replace(topic=topic, queue_id=whole_number(queue_id) or 0, property_bytes=stored)
        parts = prepare_frame(original, result.store_host, original.born_timestamp or 0)
        body = frame_bytes(parts, result.queue_offset or 0, result.physical_offset or 0, now)
        unique_key = properties.get(names.UNIQUE_KEY, "")
        header = CheckTransactionState(
            broker_name=self._broker.identity.name,
            topic=half_topics.HALF_TOPIC,
            tran_state_table_offset=result.queue_offset or 0,
            commit_log_offset=result.physical_offset or 0,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=result.message_id or "",
        )
        check = request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True)
        producers[self._turn % len(producers)].send(check)

    def _advance(self) -> Iterator[None]:
        """Move on over what is dealt with."""
        begin = self._half
        while self._half in self._dealt_with:
            if (self._half - begin + 1) % _PASSED_AT_ONCE == 0:
                yield
            self._dealt_with.discard(self._half)
            self._ended.discard(self._half)
            self._half += 1
        while self._ops and all(offset < self._half for offset in self._ops[0][1]):
            self._op = self._ops.popleft()[0] + 1
        for topic, offset in ((half_topics.HALF_TOPIC, self._half), (half_topics.OP_TOPIC, self._op)):
            if offset:
                self._broker.offsets.commit(half_topics.GROUP, topic, 0, offset)
