"""What the official Python client sees at a proxy: a JSON line each, without ids and times.

    client.py HOST:PORT PREFIX      PREFIX: of the names of topics and groups

Run by tests/interop/test_grpc.py, as programs of its users are: nothing of rmqctl is in it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol.definition_pb2 import FilterType

SECONDS = 60
POLL = 5
PREFIX = sys.argv[2]
AT = ClientConfiguration(sys.argv[1], Credentials(), request_timeout=10)


def show(what: str, found: Any) -> None:
    print(json.dumps([what, found]), flush=True)


def message(topic: str, body: bytes, **more: Any) -> Message:
    made = Message()
    made.topic, made.body = PREFIX + topic, body
    for name, text in more.pop("properties", {}).items():
        made.add_property(name, text)
    for name, given in more.items():
        setattr(made, name, given)
    return made


def seen(one: Message) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "body": one.body.decode()[:40],
        "size": len(one.body),
        "tag": one.tag,
        "keys": sorted(one.keys),
        "properties": {name: text for name, text in sorted(one.properties.items()) if name != "__transactionId__"},
        "group": one.message_group,
        "attempt": one.delivery_attempt,
        "type": Message.message_type_desc(one.message_type),
        "corrupted": one.corrupted,
    }


def failing(call: Callable[[], Any]) -> Any:
    try:
        found = call()
    except Exception as error:  # noqa: BLE001 - it is shown
        return [type(error).__name__, getattr(error, "code", None)]
    return "OK" if found is None else type(found).__name__


class Consumer:
    """A simple consumer that has its settings."""

    def __init__(self, group: str, topic: str, text: str = "*", kind: int = FilterType.TAG) -> None:
        self.consumer = SimpleConsumer(AT, PREFIX + group, {PREFIX + topic: FilterExpression(text, kind)}, POLL)
        self.consumer.startup()
        self.consumer._init_settings_event.wait(SECONDS)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.shutdown()

    def take(self, count: int, *, invisible: int = 60, acks: bool = True) -> list[Message]:
        """Messages until there are `count`, or no more came for a poll."""
        found: list[Message] = []
        end = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < end:
            got = self.consumer.receive(count - len(found), invisible)
            for one in got:
                if acks:
                    self.consumer.ack(one)
            found += got
        return found

    def nothing(self) -> int:
        """How many are there still."""
        return len(self.consumer.receive(16, 60))


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, one: Message) -> TransactionResolution:
        self.asked.append(one.body.decode())
        return TransactionResolution.ROLLBACK if one.body == b"orphan-back" else TransactionResolution.COMMIT


def sends(producer: Producer) -> None:
    for one in (
        message("plain", b"plain"),
        message("plain", b"all", tag="a", keys="k1", properties={"p": "q", "n": "5"}),
        message("plain", b"b" * 100_000, tag="b"),
        message("plain", "ünï".encode(), tag="a", properties={"n": "7"}),
    ):
        receipt = producer.send(one)
        show("sent", [receipt.offset, bool(receipt.recall_handle), receipt.transaction_id == receipt.message_id])
    with Consumer("g-all", "plain") as consumer:
        show("received", sorted(map(seen, consumer.take(4)), key=str))
        show("acknowledged", consumer.nothing())
    with Consumer("g-tags", "plain", "a || c") as consumer:
        show("by tag", sorted(map(seen, consumer.take(2)), key=str))
        show("nothing else", consumer.nothing())
    with Consumer("g-sql", "plain", "n > 5 OR p = 'q'", FilterType.SQL) as consumer:
        show("by SQL", sorted(map(seen, consumer.take(2)), key=str))


def visibility(producer: Producer) -> None:
    with Consumer("g-invisible", "seen") as consumer:
        producer.send(message("seen", b"again"))
        producer.send(message("seen", b"changed"))
        found = {one.body: one for one in consumer.take(2, invisible=10, acks=False)}
        show("first attempts", sorted([one.body.decode(), one.delivery_attempt] for one in found.values()))
        consumer.consumer.change_invisible_duration(found[b"changed"], 25)
        (again,) = consumer.take(1)
        show("not acknowledged", seen(again))
        show("old handle", failing(lambda: consumer.consumer.ack(found[b"again"])))
        (changed,) = consumer.take(1)
        show("changed", seen(changed))
        show("acknowledged twice", failing(lambda: consumer.consumer.ack(changed)))


def ordered(producer: Producer) -> None:
    for number in range(6):
        producer.send(message("fifo", b"%d" % number, message_group=f"m{number % 2}"))
    with Consumer("g-fifo", "fifo") as consumer:
        found = consumer.take(6)
        for group in ("m0", "m1"):
            show(f"in order {group}", [seen(one) for one in found if one.message_group == group])


def delayed(producer: Producer) -> None:
    begun = time.time()
    producer.send(message("delay", b"later", delivery_timestamp=int(begun + 5)))
    recalled = producer.send(message("delay", b"recalled", delivery_timestamp=int(begun + 5)))
    show("recall", failing(lambda: producer.recall_message(PREFIX + "delay", recalled.recall_handle)))
    show("recall garbage", failing(lambda: producer.recall_message(PREFIX + "delay", "garbage")))
    with Consumer("g-delay", "delay") as consumer:
        found = consumer.take(1)
        show("delayed", [*map(seen, found)])
        show("not early", time.time() - begun > 3)
        show("recalled", consumer.nothing())


def transactions(producer: Producer, checker: Checker) -> None:
    open_ones = []
    for body in (b"commit", b"rollback", b"orphan", b"orphan-back"):
        transaction = producer.begin_transaction()
        producer.send(message("tx", body, keys="t"), transaction)
        open_ones.append(transaction)
    show("commit", open_ones[0].commit().status.code)
    show("rollback", open_ones[1].rollback().status.code)
    with Consumer("g-tx", "tx") as consumer:
        found = consumer.take(2)
        show("committed", sorted(map(seen, found), key=str))
        end = time.time() + 60
        while len(set(checker.asked)) < 2 and time.time() < end:  # each is asked about in a turn of its own
            time.sleep(0.1)
        show("asked for", sorted(set(checker.asked)))
        # a broker may ask twice
        show("others", sorted({one.body.decode() for one in consumer.consumer.receive(16, 60)} - {"orphan"}))


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, bad: bytes) -> None:
        self.bad, self.lock = bad, threading.Lock()
        self.seen: list[list[Any]] = []

    def consume(self, one: Message) -> ConsumeResult:
        with self.lock:
            self.seen.append([one.body.decode(), one.delivery_attempt])
        return ConsumeResult.FAILURE if one.body == self.bad else ConsumeResult.SUCCESS

    def wait(self, count: int) -> list[Any]:
        end = time.monotonic() + SECONDS
        while len(self.seen) < count and time.monotonic() < end:
            time.sleep(0.1)
        return sorted(self.seen)


def pushed(producer: Producer) -> None:
    listener = Listener(b"bad")
    consumer = PushConsumer(AT, PREFIX + "g-push", listener, {PREFIX + "pushed": FilterExpression()})
    consumer.startup()
    for body in (b"one", b"two", b"bad", b"three"):
        producer.send(message("pushed", body))
    # what would come a fourth time is a dead letter, which the test looks at
    show("pushed", listener.wait(6))
    consumer.shutdown()


def pushed_in_order(producer: Producer) -> None:
    listener = Listener(b"1")
    consumer = PushConsumer(AT, PREFIX + "g-push-fifo", listener, {PREFIX + "pushed-fifo": FilterExpression()})
    consumer.startup()
    for number in range(3):
        producer.send(message("pushed-fifo", b"%d" % number, message_group="m"))
    show("pushed in order", [body for body, _ in listener.wait(5)])
    consumer.shutdown()


def refused(producer: Producer) -> None:
    show("unknown topic", failing(lambda: producer.send(message("nowhere", b"x"))))
    show("4 MiB", failing(lambda: producer.send(message("large", bytes(4 << 20)))))
    show("more than that", failing(lambda: producer.send(message("large", bytes((4 << 20) + 1)))))
    show("wrong type", failing(lambda: producer.send(message("plain", b"x", message_group="m"))))
    show("too far", failing(lambda: producer.send(message("delay", b"x", delivery_timestamp=int(time.time()) + 10**6))))
    with Consumer("g-large", "large") as consumer:
        show("large", [len(one.body) for one in consumer.take(1)])
        show("bad time", failing(lambda: consumer.consumer.receive(1, 5)))


def parts(producer: Producer, checker: Checker) -> Iterator[Callable[[], None]]:
    yield lambda: sends(producer)
    yield lambda: visibility(producer)
    yield lambda: ordered(producer)
    yield lambda: delayed(producer)
    yield lambda: transactions(producer, checker)
    yield lambda: pushed(producer)
    yield lambda: pushed_in_order(producer)
    yield lambda: refused(producer)


def main() -> None:
    checker = Checker()
    producer = Producer(AT, [PREFIX + "plain", PREFIX + "tx"], checker)
    producer.startup()
    for part in parts(producer, checker):
        begun = time.monotonic()
        part()
        print(part, f"{time.monotonic() - begun:.1f} s", file=sys.stderr)
    producer.shutdown()


main()
