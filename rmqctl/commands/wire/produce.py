"""`rmqctl produce`: sends messages to a broker, one given by flags or many from JSON Lines, Parquet or Arrow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import click

from rmqctl.commands.wire.by_grpc import grpc_option
from rmqctl.flags.options import (
    keep_going_option,
    message_options,
    namesrv_option,
    output_options,
    queue_option,
    source_option,
    tls_options,
    topic_option,
    zone_option,
)
from rmqctl.flags.spark_options import producer_options
from rmqctl.flags.types import DELAY_LEVEL, LARGEST_INT, SPAN, TIME
from rmqctl.formats.errors import UsageError, counted
from rmqctl.network.clients.client import BrokerError
from rmqctl.network.clients.producing.routing import Select, by_hash
from rmqctl.network.clients.producing.settings import is_single, split
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import tell_bad_items
from rmqctl.output.output import note_done

if TYPE_CHECKING:
    from rmqctl.formats.message import Message
    from rmqctl.messages.message_source import MessageSource
    from rmqctl.network.clients.channel import Dial
    from rmqctl.network.clients.producer import Producer, ProducerSettings, SendResult
    from rmqctl.network.clients.proxied import ProxyAddress, ProxyProducer
    from rmqctl.output.output import Output


@click.command(
    epilog="""\b
Examples:
  rmqctl produce -n 127.0.0.1:9876 -t Orders --tags paid -k order-7 --body '{"id":7}'
  rmqctl produce -n 127.0.0.1:9876 -t Orders --delay 3 --body later
  rmqctl produce -n 127.0.0.1:9876 -t Orders --deliver-after 90m --body 'much later'
  rmqctl produce -n 127.0.0.1:9876 -t Orders --order-key order-7 --body paid
  rmqctl produce -n 127.0.0.1:9876 --from orders.jsonl --batch 100 --latency-fault
  rmqctl produce -n 127.0.0.1:9876 -t Orders --body traced --trace
  rmqctl cat -s old -t Orders --json | rmqctl produce -n 127.0.0.1:9876 --from -
  rmqctl produce --grpc 127.0.0.1:8081 -t Orders --body one

Large bodies are compressed and every message gets a unique id, as by other producers. What --from reads is sent to the
queues of its topic in turn, regardless of its original queue."""
)
@namesrv_option.but(required=False)
@grpc_option("tags", "key", "properties", "body", "body_file", "deliver_at", "deliver_after", "transaction",
             "order_key", "source", "keep_going")  # fmt: skip
@tls_options
@topic_option.but(help="Topic of the message.")
@queue_option.but(help="Queue of the topic; the next one in turn if not given.")
@message_options
@click.option("--delay", type=DELAY_LEVEL, metavar="LEVEL", help="Deliver it after the delay of this level.")
@click.option("--deliver-at", type=TIME, metavar="TIME", help="Deliver it at this time, to the second (from 5.0 on).")
@zone_option
@click.option("--deliver-after", type=SPAN, metavar="SPAN", help="The same so long from now: 90s, 2h or 1d12h.")
@click.option("--transaction", type=click.Choice(["commit", "rollback"]), help="Send it in a transaction that ends so.")
@click.option("--group", default="rmqctl", metavar="GROUP", show_default=True, help="The producer's group.")
@click.option("--order-key", metavar="KEY", help="Send to the queue of this key; @NAME takes property NAME (@KEYS).")
@click.option(
    "--batch", type=click.IntRange(1, LARGEST_INT), metavar="N", help="With --from: send batches of at most N messages."
)
@producer_options
@source_option
@keep_going_option
@output_options
def produce(
    output: Output,
    namesrv: str,
    dial: Dial,
    grpc: ProxyAddress | None,
    topic: str | None,
    queue_id: int | None,
    tags: str | None,
    key: tuple[str, ...],
    properties: tuple[str, ...],
    flag: int,
    body: str | None,
    body_file: IO[bytes] | None,
    delay: int | None,
    deliver_at: int | None,
    deliver_after: int | None,
    transaction: Literal["commit", "rollback"] | None,
    group: str,
    order_key: str | None,
    batch: int | None,
    settings: ProducerSettings,
    source: IO[bytes] | None,
    keep_going: bool,
) -> int:
    """Send one message to a broker, or many from JSON Lines, Parquet or Arrow.

    A message counts as sent when its broker has answered: at once or when it is on disk, by the broker's settings.
    """
    from rmqctl.network.clients.producer import Producer

    waits = _waits(delay, deliver_at, deliver_after)
    if source is None:
        from rmqctl.commands.change.append import one_message

        if keep_going or batch is not None:
            raise click.UsageError("--keep-going and --batch go with --from")
        if order_key is not None and (queue_id is not None or transaction is not None):
            raise click.UsageError("--order-key goes without -q and --transaction")
        message = one_message(topic, None, tags, key, properties, flag, body, body_file)
        if waits and transaction is not None:
            raise click.UsageError("--transaction goes without --delay and --deliver-...: its end delivers the message")
        if grpc is not None:
            due = _due(deliver_at, deliver_after)
            with _proxied(grpc, settings) as proxy:
                row = proxy.send(message, group=_key(message, order_key), deliver_at=due, end=transaction)
            return _sent(output, "1 message was sent", row)
        message = message._replace(properties={**message.properties, **waits})
        with Producer(namesrv, group, dial, settings, output.talk) as producer:
            if deliver_at is not None or deliver_after is not None:
                producer.require_timer(message.topic)
            result = _send(producer, message, queue_id, order_key, transaction)
        where = f"at queue offset {result.queue_offset} of queue {result.queue.queue_id}"
        return _sent(output, f"1 message was sent, {where}", _row(message, result))
    if topic or key or properties or body is not None or body_file or tags or queue_id is not None or flag or waits:
        raise click.UsageError(
            "--from takes whole messages: no -t, -q, -k, --tags, --property, --flag, --body, --delay, ... with it"
        )
    if transaction is not None:
        raise click.UsageError("--transaction is for one message")
    from rmqctl.messages.message_source import message_source

    grouping = Grouping(order_key, batch or 1)
    with message_source(source, once=keep_going, unique_keys=False) as messages:
        if grpc is not None:
            with _proxied(grpc, settings) as proxy:
                send = functools.partial(_send_proxied, proxy, order_key)
                return send_all(send, messages, output, grouping, keep_going=keep_going)
        with Producer(namesrv, group, dial, settings, output.talk) as producer:
            send = functools.partial(_send_group, producer, grouping)
            return send_all(send, messages, output, grouping, keep_going=keep_going)


def _sent(output: Output, said: str, row: dict[str, Any]) -> int:
    note_done(said, **row)
    output.record(row)
    return exit_codes.OK


def _proxied(address: ProxyAddress, settings: ProducerSettings) -> ProxyProducer:
    from rmqctl.network.clients.proxied import ProxyProducer

    return ProxyProducer(address, settings.namespace)


def _send_proxied(proxy: ProxyProducer, order_key: str | None, messages: list[Message]) -> None:
    proxy.send(messages[0], group=_key(messages[0], order_key))


def _due(deliver_at: int | None, deliver_after: int | None) -> int | None:
    """When a message is due, in ms; None at once."""
    from rmqctl.output.times import now_ms

    return deliver_at if deliver_after is None else now_ms() + deliver_after


def _waits(delay: int | None, deliver_at: int | None, deliver_after: int | None) -> dict[str, str]:
    """The property that says when the message is to be delivered, if it is not at once."""
    given = {"DELAY": delay, "TIMER_DELIVER_MS": deliver_at, "TIMER_DELAY_MS": deliver_after}
    found = {name: str(value) for name, value in given.items() if value is not None}
    if len(found) > 1:
        raise click.UsageError("give one of --delay, --deliver-at and --deliver-after")
    return found


def _send(
    producer: Producer,
    message: Message,
    queue_id: int | None,
    order_key: str | None,
    transaction: Literal["commit", "rollback"] | None,
) -> SendResult:
    if transaction is not None:
        if queue_id is not None:
            raise click.UsageError("--transaction goes without -q")
        return producer.send_in_transaction(message, lambda _: transaction == "commit")
    if queue_id is None:
        return producer.send(message, selector(message, order_key))
    found = [queue for queue in producer.queues(message.topic) if queue.queue_id == queue_id]
    if not found:
        raise click.UsageError(f"topic {message.topic!r} has no queue {queue_id} that can be written to")
    return producer.send(message, found[0])


def _row(message: Message, result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "msg_id": ",".join(result.message_ids),
        "unique_key": result.unique_key,
        "topic": message.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
    }


# Sends all messages of a source: one by one or in batches, by a key or in turn.

# MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST, INVALID_PARAMETER: what a broker says of one message
_BAD_MESSAGE = (13, 16, 17, 29)
_PROPERTY = "@"


class Grouping(NamedTuple):
    """The key that selects queues, `@NAME` for a property, and the most messages of a batch; 1 sends no batches."""

    order_key: str | None
    most: int


def selector(message: Message, order_key: str | None) -> Select | None:
    """Return the selector of the message's queue, None for the next queue in turn. UsageError as of `_key`."""
    key = _key(message, order_key)
    return None if key is None else by_hash(key)


def _key(message: Message, order_key: str | None) -> str | None:
    """Return what a message is ordered by. UsageError where it lacks the property that has the key."""
    if order_key is None or not order_key.startswith(_PROPERTY):
        return order_key
    name = order_key.removeprefix(_PROPERTY)
    if name not in message.properties:
        raise UsageError(f"the message has no property {name!r} to order it by")
    return message.properties[name]


def send_all(
    send: Callable[[list[Message]], object],
    source: MessageSource,
    output: Output,
    grouping: Grouping,
    *,
    keep_going: bool,
) -> int:
    """Send all messages of a source in groups, whose lines are looked at before the first one is sent unless
    `keep_going`."""
    if not keep_going:
        bad = 0
        for piece in source.pieces(as_stored=False):
            bad = tell_bad_items(output, source.item, piece.errors, bad)
        if bad:
            raise click.UsageError(f"{bad} bad {source.item}s: nothing was sent; --keep-going leaves them out")
    summary = {"sent": 0, "bad_lines": 0}
    for piece in source.pieces(as_stored=False):
        read = piece
        if not isinstance(piece.content, list):
            assert piece.plain is not None
            read = piece.plain()
        assert isinstance(read.content, list)
        summary["bad_lines"] = tell_bad_items(output, source.item, read.errors, summary["bad_lines"])
        numbers = iter(read.numbers)
        for messages in _groups(read.content, grouping):
            here = [next(numbers) for _ in messages]
            try:
                send(messages)
            except (BrokerError, UsageError) as error:
                if not keep_going or (isinstance(error, BrokerError) and error.answer_code not in _BAD_MESSAGE):
                    _tell_where(output, source, summary["sent"], here[0])
                    raise
                said = dict.fromkeys(here, error.message)
                summary["bad_lines"] = tell_bad_items(output, source.item, said, summary["bad_lines"])
            except BaseException:
                _tell_where(output, source, summary["sent"], here[0])
                raise
            else:
                summary["sent"] += len(messages)
    if summary["sent"]:
        note_done(f"{counted(summary['sent'], 'message was', 'messages were')} sent", sent=summary["sent"])
    output.record(summary)
    return exit_codes.USAGE if summary["bad_lines"] else exit_codes.OK


def _tell_where(output: Output, source: MessageSource, sent: int, number: int) -> None:
    # a second run must not send all of it twice
    output.talk(f"{counted(sent, 'message was', 'messages were')} sent before {source.item} {number}")


def _groups(messages: Sequence[Message], grouping: Grouping) -> list[list[Message]]:
    """Return the messages in order, as lists that go to one queue together."""
    if grouping.most == 1:
        return [[message] for message in messages]
    if grouping.order_key is None or not grouping.order_key.startswith(_PROPERTY):
        return list(split(messages, grouping.most))
    name = grouping.order_key.removeprefix(_PROPERTY)
    runs: list[list[Message]] = []
    for message in messages:
        if runs and runs[-1][0].properties.get(name) == message.properties.get(name):
            runs[-1].append(message)
        else:
            runs.append([message])
    return [group for run in runs for group in split(run, grouping.most)]


def _send_group(producer: Producer, grouping: Grouping, messages: list[Message]) -> None:
    queue = selector(messages[0], grouping.order_key)
    if grouping.most == 1 or is_single(messages):
        producer.send(messages[0], queue)
    else:
        producer.send_batch(messages, queue)
