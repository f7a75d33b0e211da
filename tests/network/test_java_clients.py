"""Our clients refuse and choose as RocketMQ's do: tests/golden/clients has what these said (Facts.java wrote it)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message
from rmqctl.network.clients import membership as allocate
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.producing.routing import by_hash
from rmqctl.network.clients.producing.settings import ProducerSettings
from rmqctl.network.clients.push.push_consumer import PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.remoting.codec import MessageQueue

KEPT = Path(__file__).parents[1] / "golden" / "clients"
NO_ONE = "127.0.0.1:1"
"""A name server that does not answer."""


def rows(file: str, kind: str) -> Iterator[list[str]]:
    """Yield the columns of the lines of one kind, without the kind."""
    with (KEPT / file).open(encoding="utf-8", newline="") as lines:
        for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row[0] == kind:
                yield row[1:]


def test_a_key_chooses_the_queue_that_java_chooses() -> None:
    checked = 0
    for kind, key, count, chosen in rows("choices.tsv", "queue"):
        queues = [MessageQueue("a", number, "T") for number in range(int(count))]
        select = by_hash(key if kind == "text" else int(key))
        assert select(queues, Message("T", b"")).queue_id == int(chosen), (kind, key, count)
        checked += 1
    assert checked == 76


def room_of(name: str) -> str:
    """Return the room as Facts.java names it."""
    if "-" in name:
        return name.partition("-")[0]
    return name[: name.index("@")] if name.find("@") > 0 else "other"


STRATEGIES = {
    "avg": allocate.averagely,
    "circle": allocate.by_circle,
    "hash": allocate.by_consistent_hash,
    "room": allocate.by_machine_room({"east", "north", ""}),
    "nearby": allocate.by_machine_room_nearby(room_of),
}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_queues_are_shared_out_as_by_java(name: str) -> None:
    checked = 0
    for strategy, brokers, number, count, shares in rows("choices.tsv", "allocate"):
        if strategy != name:
            continue
        queues = sorted(MessageQueue(broker, one, "Orders") for broker in brokers.split() for one in range(int(number)))
        members = sorted(
            f"{'west' if one % 2 else 'east'}-10.0.0.{one * 7 % 11}@{4000 + one * 37}" for one in range(int(count))
        )
        ours = [STRATEGIES[name](queues, members, who) for who in members]
        theirs = [[queues[int(one)] for one in share.split(",") if one] for share in shares.split(";")]
        assert ours == theirs, (brokers, number, count)
        checked += 1
    assert checked == 36


# ---- texts


def _one(body: bytes = b"x", topic: str = "T", **properties: str) -> Message:
    return Message(topic, body, properties=properties)


def _text(step: Callable[[], object]) -> str:
    """Return what goes wrong, `ok`, or `sent` where only the name server is missing."""
    try:
        step()
    except RmqctlError as error:
        return "sent" if NO_ONE in error.message else error.message
    return "ok"


def _producer(group: str, **settings: int | str) -> Producer:
    return Producer(NO_ONE, group, settings=ProducerSettings(**settings))  # type: ignore[arg-type]


def _states() -> Iterator[tuple[str, str]]:
    """Yield what is said in each state, by its name in texts.tsv."""
    groups = {"blank": " ", "long": "g" * 256, "illegal": "a b", "default": "DEFAULT_PRODUCER"}
    for name, group in groups.items():
        yield f"group {name}", _text(_producer(group).start)
    failing = _producer("a b")
    yield "failed start", _text(failing.start)
    yield "start after a failed one", _text(failing.start)
    yield "send after a failed start", _text(lambda: failing.send(_one()))
    one = _producer("twice", instance_name="same")
    yield "send before start", _text(lambda: one.send(_one()))
    yield "start", _text(one.start)
    yield "start once more", _text(one.start)
    other = _producer("twice", instance_name="same")
    yield "second of a group", _text(other.start)
    yield "send of the second", _text(lambda: other.send(_one()))
    one.close()
    yield "send after shutdown", _text(lambda: one.send(_one()))
    yield "start after shutdown", _text(one.start)
    yield "second when the first has gone", _text(other.start)
    other.close()


def _sends() -> Iterator[tuple[str, str]]:
    with _producer("sends", max_message_size=100) as producer:
        for name, _ in rows("texts.tsv", "said"):
            if name.startswith("topic "):
                topic = name.removeprefix("topic ")
                yield name, _text(lambda topic=topic: producer.send(_one(topic=topic)))  # type: ignore[misc]
        yield "body empty", _text(lambda: producer.send(_one(b"")))
        yield "body large", _text(lambda: producer.send(_one(b"x" * 101)))
        yield "multi dispatch", _text(lambda: producer.send(_one(INNER_MULTI_DISPATCH="a/b")))
    with _producer("batches") as producer:
        batches = {
            "of two topics": [_one(), _one(topic="U")],
            "with a delay": [_one(), _one(DELAY="1")],
            "of two ways to wait": [_one(), _one(WAIT="false")],
            "of a retry topic": [_one(topic="%RETRY%g"), _one(topic="%RETRY%g")],
            "with an empty body": [_one(), _one(b"")],
        }
        for name, messages in batches.items():
            yield f"batch {name}", _text(lambda messages=messages: producer.send_batch(messages))  # type: ignore[misc]


CONSUMER_SETTINGS: dict[str, dict[str, float]] = {
    "threads 0": {"threads": 0},
    "threads 1001": {"threads": 1001},
    "span 0": {"concurrent_max_span": 0},
    "span 65536": {"concurrent_max_span": 65536},
    "queue count 0": {"pull_threshold_for_queue": 0},
    "topic count 0": {"pull_threshold_for_topic": 0},
    "queue size 1025": {"pull_threshold_size_for_queue": 1025},
    "topic size 0": {"pull_threshold_size_for_topic": 0},
    "pause 65536": {"pull_interval": 65.536},
    "batch 1025": {"batch_size": 1025},
    "pull batch 0": {"pull_batch_size": 0},
}


def _consumers() -> Iterator[tuple[str, str]]:
    def made(group: str) -> PushConsumer:
        return PushConsumer(NO_ONE, group, {"T": "*"}, lambda *_: ConsumeStatus.CONSUME_SUCCESS)

    for name, group in {"long": "g" * 256, "illegal": "a b", "default": "DEFAULT_CONSUMER"}.items():
        yield f"consumer group {name}", _text(lambda group=group: made(group))  # type: ignore[misc]
    for name, settings in CONSUMER_SETTINGS.items():
        yield f"consumer {name}", _text(lambda settings=settings: PushSettings(**settings))  # type: ignore[misc]


def test_what_is_refused_is_refused_with_java_s_words() -> None:
    theirs = dict(rows("texts.tsv", "said"))
    ours = dict([*_states(), *_sends(), *_consumers()])
    assert ours.keys() == theirs.keys()
    for name, text in theirs.items():
        # a code comes before some of them, and the reason of a batch after a sentence that is the same for all
        wanted = text.removeprefix("Failed to initiate the MessageBatch: ").partition("  DESC: ")[2] or text
        wanted = wanted.removeprefix("Failed to initiate the MessageBatch: ")
        assert ours[name].startswith(wanted), name
