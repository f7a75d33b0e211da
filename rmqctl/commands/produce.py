"""`rmqctl produce`: sends messages to a broker, one given by flags or many from JSON Lines, Parquet or Arrow."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Literal

import click

from rmqctl import exit_codes
from rmqctl.options import (
    keep_going_option,
    message_options,
    namesrv_option,
    output_options,
    queue_option,
    source_option,
    topic_option,
)
from rmqctl.reports.damage import tell_bad_items

if TYPE_CHECKING:
    from rmqctl.formats.message import Message
    from rmqctl.messages.message_source import MessageSource
    from rmqctl.network.clients.producer import Producer, SendResult
    from rmqctl.output.output import Output


@click.command(
    epilog="""\b
Examples:
  rmqctl produce -n 127.0.0.1:9876 -t Orders --tags paid -k order-7 --body '{"id":7}'
  rmqctl produce -n 127.0.0.1:9876 -t Orders --delay 3 --body later
  rmqctl cat -s old -t Orders --json | rmqctl produce -n 127.0.0.1:9876 --from -

Large bodies are compressed and every message gets a unique id, as by other producers. What --from reads is sent to the
queues of its topic in turn, whatever queue it came from."""
)
@namesrv_option
@topic_option.but(help="Topic of the message.")
@queue_option.but(help="Queue of the topic; the next one in turn if not given.")
@message_options
@click.option("--delay", type=click.IntRange(min=1), metavar="LEVEL", help="Deliver it after the delay of this level.")
@click.option("--transaction", type=click.Choice(["commit", "rollback"]), help="Send it in a transaction that ends so.")
@click.option("--group", default="rmqctl", metavar="GROUP", show_default=True, help="The producer's group.")
@source_option
@keep_going_option
@output_options
def produce(
    output: Output,
    namesrv: str,
    topic: str | None,
    queue_id: int | None,
    tags: str | None,
    key: tuple[str, ...],
    properties: tuple[str, ...],
    flag: int,
    body: str | None,
    body_file: IO[bytes] | None,
    delay: int | None,
    transaction: Literal["commit", "rollback"] | None,
    group: str,
    source: IO[bytes] | None,
    keep_going: bool,
) -> int:
    """Send one message to a broker, or many from JSON Lines, Parquet or Arrow.

    A message counts as sent when its broker has answered: at once or when it is on disk, as the broker is set.
    """
    from rmqctl.network.clients.producer import Producer

    if source is None:
        from rmqctl.commands.append import one_message

        if keep_going:
            raise click.UsageError("--keep-going goes with --from")
        message = one_message(topic, None, tags, key, properties, flag, body, body_file)
        if delay is not None:
            message = message._replace(properties={**message.properties, "DELAY": str(delay)})
        with Producer(namesrv, group) as producer:
            result = _send(producer, message, queue_id, transaction)
        output.record(_row(message, result))
        return exit_codes.OK
    if topic or key or properties or body is not None or body_file or tags or queue_id is not None or flag or delay:
        raise click.UsageError(
            "--from takes whole messages: no -t, -q, -k, --tags, --property, --flag, --body or --delay with it"
        )
    if transaction is not None:
        raise click.UsageError("--transaction is for one message")
    from rmqctl.messages.message_source import message_source

    with message_source(source, once=keep_going, unique_keys=False) as messages, Producer(namesrv, group) as producer:
        return _send_all(producer, messages, output, keep_going=keep_going)


def _send(
    producer: Producer, message: Message, queue_id: int | None, transaction: Literal["commit", "rollback"] | None
) -> SendResult:
    if transaction is not None:
        if queue_id is not None:
            raise click.UsageError("--transaction goes without -q")
        return producer.send_in_transaction(message, lambda _: transaction == "commit")
    if queue_id is None:
        return producer.send(message)
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


def _send_all(producer: Producer, source: MessageSource, output: Output, *, keep_going: bool) -> int:
    """Send all messages of a source, whose lines are looked at before the first one is sent unless told otherwise."""
    if not keep_going:
        bad = 0
        for piece in source.pieces(as_stored=False):
            bad = tell_bad_items(output, source.item, piece.errors, bad)
        if bad:
            raise click.UsageError(f"{bad} bad {source.item}s: nothing was sent; --keep-going leaves them out")
    summary = {"sent": 0, "bad_lines": 0}
    for piece in source.pieces(as_stored=False):
        content = piece.content
        if not isinstance(content, list):
            assert piece.plain is not None
            content = piece.plain().content
            assert isinstance(content, list)
        summary["bad_lines"] = tell_bad_items(output, source.item, piece.errors, summary["bad_lines"])
        for message in content:
            producer.send(message)
            summary["sent"] += 1
    output.record(summary)
    return exit_codes.USAGE if summary["bad_lines"] else exit_codes.OK
