"""What RocketMQ's C++ client sees at a broker, by the bindings of the PyPI package `rocketmq` 0.4.4: a JSON line each,
without ids and times.

    client.py HOST:PORT PREFIX      PREFIX: of the names of topics and groups
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

SECONDS = 60
NAMESRV, PREFIX = sys.argv[1:3]


def show(what: str, found: Any) -> None:
    print(json.dumps([what, found]), flush=True)


def message(topic: str, body: bytes, **properties: str) -> Message:
    made = Message(PREFIX + topic)
    made.set_body(body)
    for name, text in properties.items():
        if name == "tags":
            made.set_tags(text)
        elif name == "keys":
            made.set_keys(text)
        else:
            made.set_property(name, text)
    return made


def seen(one: Any) -> list[Any]:
    body = one.body.decode()
    texts = [text.decode() if text else None for text in (one.tags, one.keys, one[b"n"])]
    return [one.topic, body[:40], len(body), *texts, one.reconsume_times, one.delay_time_level]


def consumed(
    group: str, topic: str, count: int, expression: str = "*", *, orderly: bool = False, failing: str = ""
) -> list[list[Any]]:
    """What a push consumer was given until it had so many, and a little longer."""
    found: list[list[Any]] = []
    lock = threading.Lock()

    def take(one: Any) -> None:
        row = seen(one)
        with lock:
            found.append(row)
        if row[1] == failing and not one.reconsume_times:
            raise ValueError("send it back")

    consumer = PushConsumer(PREFIX + group, orderly=orderly)
    consumer.set_namesrv_addr(NAMESRV)
    consumer.set_instance_name(group)
    consumer.subscribe(PREFIX + topic, take, expression)
    consumer.start()
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    consumer.shutdown()
    return found


def main() -> None:
    producer = Producer(PREFIX + "pg")
    producer.set_namesrv_addr(NAMESRV)
    producer.start()
    for one in (
        message("plain", b"plain"),
        message("plain", b"all", tags="a", keys="k1", n="5"),
        message("plain", b"b" * 100_000, tags="b"),
    ):
        sent = producer.send_sync(one)
        show("sent", [sent.status.name, sent.offset, len(sent.msg_id)])
    sent = producer.send_batch([message("plain", b"batch 0"), message("plain", b"batch 1")])
    show("sent together", [sent.status.name, sent.offset])
    producer.send_oneway(message("plain", b"one way"))
    show("received", sorted(consumed("g-all", "plain", 6), key=str))
    show("by tag", sorted(consumed("g-tags", "plain", 1, "a || c"), key=str))
    show("again", sorted(consumed("g-invisible", "plain", 7, failing="plain"), key=str))
    for number in range(6):
        producer.send_orderly(message("fifo", b"%d" % number), 7)
    show("in order", [row[1] for row in consumed("g-fifo", "fifo", 6, orderly=True)])
    begun = time.monotonic()
    later = message("delay", b"later")
    later.set_delay_time_level(2)
    show("sent to come later", producer.send_sync(later).status.name)
    show("delayed", [row[:2] for row in consumed("g-delay", "delay", 1)])
    show("not early", time.monotonic() - begun > 4)
    show("too large", failing(lambda: producer.send_sync(message("plain", bytes(5 << 20)))))
    puller = PullConsumer(PREFIX + "g-push")
    puller.set_namesrv_addr(NAMESRV)
    puller.start()
    pulled: list[str] = []
    for one in puller.pull(PREFIX + "plain"):
        pulled.append(one.body.decode()[:40])
    show("pulled", sorted(pulled))
    puller.shutdown()
    producer.shutdown()
    sys.stdout.flush()
    # its threads do not end by themselves
    os._exit(0)


def failing(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except Exception as error:  # noqa: BLE001 - it is shown
        return type(error).__name__


main()
