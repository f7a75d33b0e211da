"""Hooks of producers and consumers, and message traces built on them, in RocketMQ's encoding."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError, RemoteError
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.network.broker.query import frame_at
from rmqctl.network.clients import tracing
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.hooks import (
    ConsumeHook,
    ConsumeHookContext,
    ConsumeReturn,
    EndTransactionContext,
    MessageType,
    SendHook,
    SendHookContext,
)
from rmqctl.network.clients.producer import Producer, ProducerSettings
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, OrderlyStatus, PushSettings
from rmqctl.network.clients.tracing import (
    LARGEST_MESSAGE,
    ConsumeTrace,
    TraceBean,
    TraceDispatcher,
    TraceOptions,
    TraceRecord,
    TraceType,
    decode,
    encode,
    keys_of,
)
from rmqctl.network.remoting.codec import RemotingCommand, RequestCode
from rmqctl.network.serving import LocalBroker
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore

TRACED = ProducerSettings(enable_trace=True)
LIMIT = 60.0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    config = StoreConfig(mapped_file_size_commit_log=1 << 20, timer_wheel_enable=False)
    path = tmp_path_factory.mktemp("tracing") / "store"
    with MessageStore.open(path, "rw", config, create=True) as store, LocalBroker(store) as broker:
        yield broker


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait 5 s for traces when they end, and 5 s for the answer to each: a busy machine needs more."""
    monkeypatch.setattr(tracing, "_CLOSE_SECONDS", LIMIT)
    monkeypatch.setattr(tracing, "_SEND_MS", int(LIMIT * 1000))


def traces(local: LocalBroker, topic: str = "RMQ_SYS_TRACE_TOPIC") -> list[tuple[StoredMessage, list[TraceRecord]]]:
    """Return the trace messages that the broker has, with their records."""
    store = local.broker.store
    store.wait_for_dispatch()
    found: list[tuple[StoredMessage, list[TraceRecord]]] = []
    for queue in range(8):
        try:
            messages = store.get(topic, queue, 0, 32).messages
        except LookupError:
            continue
        found += [(one, decode(one.plain_body())) for one in messages]
    return found


def records(local: LocalBroker, group: str) -> list[TraceRecord]:
    """Return the records of a group, the earliest first."""
    found = [one for _, several in traces(local) for one in several if one.group == group]
    return sorted(found, key=lambda one: (one.timestamp or 0, one.request_id, list(TraceType).index(one.type)))


# ---- encoding: the texts are those of TraceDataEncoder of 5.3.3

BEAN = TraceBean("T", "ID", "tag", "k1 k2", "1.2.3.4:10911", 5, MessageType.DELAY, "OFF", 2)
ENCODED = [
    (
        TraceRecord(TraceType.PUB, (BEAN,), 17, "g", "R", 9, is_success=False),
        "Pub|17|R|g|T|ID|tag|k1 k2|1.2.3.4:10911|5|9|3|OFF|false;",
    ),
    (
        TraceRecord(TraceType.PUB, (TraceBean("T", "ID"),), 17, "g"),
        "Pub|17|DefaultRegion|g|T|ID|null|null|null|0|0|0|null|true;",
    ),
    (
        TraceRecord(TraceType.SUB_BEFORE, (BEAN, TraceBean("T", "I2")), 17, "g", "R", request_id="RQ"),
        "SubBefore|17|R|g|RQ|ID|2|k1 k2;SubBefore|17|R|g|RQ|I2|0|null;",
    ),
    (
        TraceRecord(TraceType.SUB_AFTER, (BEAN,), 17, "g", "R", 9, False, "RQ", ConsumeReturn.FAILED),
        "SubAfter|RQ|ID|9|false|k1 k2|4|17|g;",
    ),
    (
        TraceRecord(
            TraceType.END_TRANSACTION,
            (BEAN._replace(transaction_id="TX", transaction_state="COMMIT_MESSAGE", is_from_check=True),),
            17,
            "g",
            "R",
        ),
        "EndTransaction|17|R|g|T|ID|tag|k1 k2|1.2.3.4:10911|3|TX|COMMIT_MESSAGE|true;",
    ),
    (TraceRecord(TraceType.RECALL, (BEAN,), 17, "g", "R"), "Recall|17|R|g|T|ID|true;"),
]


@pytest.mark.parametrize(("record", "text"), ENCODED)
def test_records_are_encoded_as_rocketmq_does(record: TraceRecord, text: str) -> None:
    raw = text.replace("|", "\x01").replace(";", "\x02")
    assert encode(record) == raw
    found = decode(raw.encode())
    assert "".join(map(encode, found)) == raw
    assert [one.beans[0].message_id for one in found] == [bean.message_id for bean in record.beans]
    assert keys_of(record)[:1] == ["ID"]


def test_records_of_older_clients_are_decoded() -> None:
    old = (
        "Pub|17|R|g|T|ID|tag|k|host|5|9|0|true;Pub|17|R|g|T|ID|t|k|host|5|9|0|OFF|true|client;SubAfter|RQ|ID|9|true|k;"
    )
    one, other, after = decode(old.replace("|", "\x01").replace(";", "\x02").encode())
    assert (one.is_success, one.beans[0].offset_message_id) == (True, None)
    assert (other.is_success, other.beans[0].offset_message_id) == (True, "OFF")
    assert (after.code, after.timestamp, after.group) == (None, None, None)


@pytest.mark.parametrize(
    "body", [b"x", b"Pub\x011", b"Pub\x01a\x01b\x02", b"\xff", b"SubAfter\x01a\x01b\x01c\x01d\x01e\x02"]
)
def test_what_is_not_a_trace_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptError, match="not made of trace records"):
        decode(body)


# ---- dispatcher


class Sent:
    """A producer that keeps what it is to send; it waits before each send until `goes_on`."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.error: RemoteError | None = None
        self.is_closed = False

    def start(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """See TraceProducer."""
        self.is_closed = True

    def send_soon(self, message: Message) -> Future[Any]:
        """See TraceProducer."""
        assert self.goes_on.wait(LIMIT)
        self.messages.append(message)
        done: Future[Any] = Future()
        if self.error is None:
            done.set_result(None)
        else:
            done.set_exception(self.error)
        return done


def pub(topic: str, message_id: str, keys: str | None = None) -> TraceRecord:
    return TraceRecord(TraceType.PUB, (TraceBean(topic, message_id, keys=keys),), 1, "g")


def test_records_leave_in_batches_by_topic() -> None:
    sent, said = Sent(), list[str]()
    dispatcher = TraceDispatcher(lambda: sent, TraceOptions("Own", 4), said.append)
    dispatcher.start()
    for number in range(4):
        assert dispatcher.append(pub("AB"[number % 2], str(number), "k j"))
    until = time.monotonic() + LIMIT
    while len(sent.messages) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert [(one.topic, one.properties) for one in sent.messages] == [
        ("Own", {"KEYS": "0 k j 2"}),
        ("Own", {"KEYS": "1 k j 3"}),
    ]
    assert dispatcher.append(pub("A", "last"))
    dispatcher.close()
    assert sent.messages[2].body == encode(pub("A", "last")).encode()
    assert (sent.is_closed, said, dispatcher.append(pub("A", "late"))) == (True, [], False)


def test_a_trace_message_is_no_larger_than_allowed() -> None:
    sent = Sent()
    dispatcher = TraceDispatcher(lambda: sent, TraceOptions("Own", 20), lambda line: None)
    for number in range(20):
        dispatcher.append(pub("A", f"{number}-" + "ö" * 10_000))
    dispatcher.append(pub("A", "short", " ".join(f"key{number}" for number in range(1000))))
    dispatcher.start()
    dispatcher.close()
    assert all(len(one.body) <= LARGEST_MESSAGE for one in sent.messages)
    assert max(len(one.properties["KEYS"].encode()) for one in sent.messages) < 32_000
    found = [record.beans[0].message_id.partition("-")[0] for one in sent.messages for record in decode(one.body)]
    assert found == [*map(str, range(20)), "short"]


def test_nothing_waits_for_traces_and_too_many_are_discarded() -> None:
    sent, said = Sent(), list[str]()
    sent.goes_on.clear()
    dispatcher = TraceDispatcher(lambda: sent, TraceOptions(), said.append)
    dispatcher.start()
    began = time.monotonic()
    kept = sum(dispatcher.append(pub("A", str(number))) for number in range(5000))
    assert time.monotonic() - began < LIMIT / 2
    assert 2048 <= kept <= 2048 + 20
    assert dispatcher.discarded == 5000 - kept
    sent.goes_on.set()
    dispatcher.close()
    assert sum(len(decode(one.body)) for one in sent.messages) == kept
    assert said == [f"{5000 - kept} trace records were not sent"]


def test_traces_that_are_lost_are_reported_once() -> None:
    sent, said = Sent(), list[str]()
    sent.error = RemoteError("away")
    dispatcher = TraceDispatcher(lambda: sent, TraceOptions(batch=1), said.append)
    dispatcher.start()
    for number in range(3):
        dispatcher.append(pub("A", str(number)))
    dispatcher.close()
    assert said == ["trace records for topic 'RMQ_SYS_TRACE_TOPIC' are lost: away"]


# ---- hooks of producers


class Noted(SendHook):
    """A hook that keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, SendHookContext]] = []

    def before(self, context: SendHookContext) -> None:
        """Keep it."""
        self.seen.append(("before", context))

    def after(self, context: SendHookContext) -> None:
        """Keep it."""
        self.seen.append(("after", context))


def test_hooks_see_every_send(local: LocalBroker) -> None:
    hook = Noted()
    with Producer(local.namesrv, "hooked", local.dial) as producer:
        producer.hooks.sending.append(hook)
        message = Message("Hooked", b"x" * 5000, properties={"TAGS": "t"})
        result = producer.send(message)
        producer.send_soon(message).result(LIMIT)
        producer.send_oneway(message)
        producer.send_batch([Message("Hooked", b"1"), Message("Hooked", b"2")])
        refused = Message("Hooked", b"y", properties={"DELAY": "1", "K": "v" * 40_000})
        with pytest.raises(RemoteError):
            producer.send(refused)
    assert [when for when, _ in hook.seen] == ["before", "after"] * (len(hook.seen) // 2)
    seen = [context for when, context in hook.seen if when == "after"]
    assert [one.mode for one in seen[:4]] == ["SYNC", "ASYNC", "ONEWAY", "SYNC"]
    first, soon, oneway, batch, failed = seen[:5]
    assert (first.result, first.error, first.group, first.unique_key) == (result, None, "hooked", result.unique_key)
    assert len(first.body) < 5000
    assert soon.result is not None
    assert (oneway.result, oneway.error) == (None, None)
    assert (batch.is_batch, batch.unique_key.count(",")) == (True, 1)
    assert (failed.result, isinstance(failed.error, RemoteError), failed.message_type) == (
        None,
        True,
        MessageType.DELAY,
    )


def test_a_hook_that_fails_is_reported_and_a_send_may_be_forbidden(local: LocalBroker) -> None:
    class Failing(SendHook):
        def before(self, context: SendHookContext) -> None:
            raise ValueError("broken")

    def forbid(context: SendHookContext) -> None:
        if context.message.body == b"no":
            raise RefusedError("not on Fridays")

    said: list[str] = []
    with Producer(local.namesrv, "forbids", local.dial, warn=said.append) as producer:
        producer.hooks.sending.append(Failing())
        producer.hooks.forbidding.append(forbid)
        assert producer.send(Message("Hooked", b"yes")).status == "SEND_OK"
        for send in (producer.send, producer.send_soon, producer.send_oneway):
            with pytest.raises(RefusedError, match="not on Fridays"):
                send(Message("Hooked", b"no"))
    assert said == ["hook Failing failed: ValueError: broken"]


def test_hooks_see_the_ends_of_transactions(local: LocalBroker) -> None:
    seen: list[EndTransactionContext] = []
    with Producer(local.namesrv, "ends", local.dial) as producer:
        producer.hooks.ending.append(seen.append)
        results = [
            producer.send_in_transaction(
                Message("Hooked", b"t"), {True: lambda _: True, False: lambda _: False, None: lambda _: None}[outcome]
            )
            for outcome in (True, False, None)
        ]
    assert [one.state for one in seen] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    assert [one.unique_key for one in seen] == [one.unique_key for one in results]
    assert not any(one.is_from_check for one in seen)


# ---- hooks of consumers


class Consumed(ConsumeHook):
    """A hook that keeps how consumptions ended."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, ConsumeReturn]] = []
        self.begun = 0

    def before(self, context: ConsumeHookContext) -> None:
        """Count it."""
        self.begun += 1

    def after(self, context: ConsumeHookContext) -> None:
        """Keep it."""
        self.seen.append((context.messages[0].plain_body().decode(), context.is_success, context.returned))


def decide(messages: list[StoredMessage], context: Any, later: Any, success: Any) -> Any:
    body = messages[0].plain_body()
    if body == b"raises":
        raise ValueError(body)
    if body == b"slow":
        time.sleep(0.06)
    return {b"later": later, b"none": None}.get(body, success)


def test_hooks_see_how_a_consumption_ended(local: LocalBroker) -> None:
    bodies = ["fine", "later", "none", "raises", "slow"]
    with Producer(local.namesrv, "for-hooks", local.dial) as producer:
        queue = producer.queues("Ended")[0]
        for body in bodies:
            producer.send(Message("Ended", body.encode()), queue)
    local.broker.store.wait_for_dispatch()
    hook = Consumed()
    consumer = PushConsumer(
        local.namesrv, "sees", {"Ended": "*"},
        lambda messages, context: decide(
            list(messages), context, ConsumeStatus.RECONSUME_LATER, ConsumeStatus.CONSUME_SUCCESS
        ),
        settings=PushSettings(first_pull_seconds=0.0, threads=1, consume_timeout=0.05),
        options=MemberOptions(begin="first", dial=local.dial),
    )  # fmt: skip
    consumer.hooks.append(hook)
    with consumer:
        consumer.wait_to_the_end()
    assert hook.seen[:5] == [
        ("fine", True, ConsumeReturn.SUCCESS),
        ("later", False, ConsumeReturn.FAILED),
        ("none", False, ConsumeReturn.RETURNNULL),
        ("raises", False, ConsumeReturn.EXCEPTION),
        ("slow", True, ConsumeReturn.TIME_OUT),
    ]
    assert hook.begun == len(hook.seen)


def test_hooks_see_a_consumption_in_order(local: LocalBroker) -> None:
    with Producer(local.namesrv, "for-order", local.dial) as producer:
        producer.send(Message("InOrder", b"later"), producer.queues("InOrder")[0])
    local.broker.store.wait_for_dispatch()
    hook = Consumed()
    verdicts = iter([OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, None, OrderlyStatus.SUCCESS])
    consumer = PushConsumer(
        local.namesrv, "sees-order", {"InOrder": "*"}, on_ordered=lambda messages, context: next(verdicts),
        settings=PushSettings(first_pull_seconds=0.0, suspend_seconds=0.01),
        options=MemberOptions(begin="first", dial=local.dial),
    )  # fmt: skip
    consumer.hooks.append(hook)
    with consumer:
        consumer.wait_to_the_end()
    assert [(is_success, returned) for _, is_success, returned in hook.seen] == [
        (False, ConsumeReturn.FAILED),
        (False, ConsumeReturn.RETURNNULL),
        (True, ConsumeReturn.SUCCESS),
    ]


# ---- traces


def test_sends_are_traced(local: LocalBroker) -> None:
    with Producer(local.namesrv, "traced", local.dial, TRACED) as producer:
        keyed = producer.send(Message("Traced", b"keyed", properties={"TAGS": "paid", "KEYS": "k1 k2"}))
        batch = producer.send_batch([Message("Traced", b"1"), Message("Traced", b"2")])
        half = producer.send_in_transaction(Message("Traced", b"half"), lambda _: True)
        producer.send_soon(Message("Traced", b"later", properties={"DELAY": "1"})).result(LIMIT)
        address = next(iter(producer._sender.routes.find("Traced").addresses.values()))
    found = {(one.type, one.beans[0].message_id): one for one in records(local, "traced")}
    assert len(found) == 5
    record = found[TraceType.PUB, keyed.unique_key]
    assert record.beans[0] == TraceBean(
        "Traced", keyed.unique_key, "paid", "k1 k2", address, 5, MessageType.NORMAL, keyed.message_ids[0]
    )
    assert (record.region, record.is_success) == ("DefaultRegion", True)
    (of_batch,) = [one for one in found.values() if "," in one.beans[0].message_id]
    assert of_batch.beans[0].offset_message_id == ",".join(batch.message_ids)
    assert found[TraceType.PUB, half.unique_key].beans[0].message_type is MessageType.TRANSACTION_HALF
    ended = found[TraceType.END_TRANSACTION, half.unique_key].beans[0]
    assert (ended.transaction_state, ended.transaction_id, ended.is_from_check, ended.message_type) == (
        "COMMIT_MESSAGE", half.unique_key, False, MessageType.TRANSACTION_COMMIT,
    )  # fmt: skip
    (delayed,) = [one for one in found.values() if one.beans[0].message_type is MessageType.DELAY]
    assert delayed.is_success
    # by the ids and keys of its messages a trace is found
    assert any({keyed.unique_key, "k1", "k2"} <= {*one.properties()["KEYS"].split()} for one, _ in traces(local))


def test_a_failed_send_and_the_trace_topic_are_not_traced(local: LocalBroker) -> None:
    with Producer(local.namesrv, "untraced", local.dial, TRACED) as producer:
        with pytest.raises(RemoteError):
            producer.send(Message("Traced", b"y", properties={"K": "v" * 40_000}))
        producer.send(Message("RMQ_SYS_TRACE_TOPIC", encode(pub("x", "x")).encode()))
    assert records(local, "untraced") == []


def test_a_broker_that_wants_no_traces_gets_none(local: LocalBroker) -> None:
    local.broker.settings = local.broker.settings._replace(trace_on=False)
    try:
        with Producer(local.namesrv, "unwanted", local.dial, TRACED) as producer:
            assert not producer.send(Message("Unwanted", b"x")).is_trace_on
        local.broker.store.wait_for_dispatch()
        with Consumer(local.namesrv, "unwanted", "Unwanted", begin="first", dial=local.dial) as consumer:
            seen: list[TraceRecord] = []
            dispatcher = TraceDispatcher(Sent, TraceOptions(), lambda line: None)
            dispatcher.append = seen.append  # type: ignore[assignment,method-assign]
            consumer.hooks.append(ConsumeTrace(dispatcher))
            assert consumer.poll(LIMIT)
        assert (seen, records(local, "unwanted")) == ([], [])
    finally:
        local.broker.settings = local.broker.settings._replace(trace_on=True)


def test_consumptions_are_traced(local: LocalBroker) -> None:
    with Producer(local.namesrv, "for-traces", local.dial) as producer:
        queue = producer.queues("Got")[0]
        ids = [
            producer.send(Message("Got", body, properties={"KEYS": "k"}), queue).unique_key
            for body in (b"fine", b"later")
        ]
    local.broker.store.wait_for_dispatch()
    with PushConsumer(
        local.namesrv, "gets", {"Got": "*"},
        lambda messages, context: decide(
            list(messages), context, ConsumeStatus.RECONSUME_LATER, ConsumeStatus.CONSUME_SUCCESS
        ),
        settings=PushSettings(first_pull_seconds=0.0, threads=1, enable_trace=True),
        options=MemberOptions(begin="first", dial=local.dial),
    ) as consumer:  # fmt: skip
        consumer.wait_to_the_end()
    found = [(one.type, one.beans[0].message_id, one.is_success, one.code) for one in records(local, "gets")]
    assert sorted(found, key=lambda one: (ids.index(one[1]), one[0].value)) == [
        (TraceType.SUB_AFTER, ids[0], True, ConsumeReturn.SUCCESS),
        (TraceType.SUB_BEFORE, ids[0], True, ConsumeReturn.SUCCESS),
        (TraceType.SUB_AFTER, ids[1], False, ConsumeReturn.FAILED),
        (TraceType.SUB_BEFORE, ids[1], True, ConsumeReturn.SUCCESS),
    ]
    requests = {one.beans[0].message_id: one.request_id for one in records(local, "gets")}
    assert len({*requests.values()}) == 2
    assert local.broker.clients.consumer_group("gets") is None


def test_a_check_of_a_transaction_is_traced(local: LocalBroker) -> None:
    with Producer(local.namesrv, "checked", local.dial, TRACED) as producer:
        half = producer.send_in_transaction(Message("Traced", b"asked"), lambda _: None)
        address = next(iter(producer._sender.routes.find("Traced").addresses.values()))
        producer.answer_checks(lambda message: False)
        local.broker.store.wait_for_dispatch()
        stored = next(
            one for one in local.broker.store.get("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 32).messages
            if one.properties()["UNIQ_KEY"] == half.unique_key
        )  # fmt: skip
        fields = {"commitLogOffset": "0", "tranStateTableOffset": "0", "msgId": half.unique_key}
        frame = frame_at(local.broker, stored.physical_offset)
        producer._asked(address, RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, fields, frame))
        # checks have a thread of their own
        done = threading.Event()
        producer._checks.put(done.set)
        assert done.wait(60)
    states = [one.beans[0] for one in records(local, "checked") if one.type is TraceType.END_TRANSACTION]
    # records go to queues in turn: their order is not that of the messages that hold them
    assert {(one.transaction_state, one.is_from_check) for one in states} == {
        ("UNKNOW", False),
        ("ROLLBACK_MESSAGE", True),
    }
