"""Sends all messages of a source: one by one or in batches, by a key or in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from rmqctl import exit_codes
from rmqctl.formats.errors import UsageError
from rmqctl.formats.wording import counted
from rmqctl.network.clients.client import BrokerError
from rmqctl.network.clients.producing.batches import is_single, split
from rmqctl.network.clients.producing.selectors import Select, by_hash
from rmqctl.output.done import note_done
from rmqctl.reports.damage import tell_bad_items

if TYPE_CHECKING:
    from rmqctl.formats.message import Message
    from rmqctl.messages.message_source import MessageSource
    from rmqctl.network.clients.producer import Producer
    from rmqctl.output.output import Output

# MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST, INVALID_PARAMETER: what a broker says of one message
_BAD_MESSAGE = (13, 16, 17, 29)
_PROPERTY = "@"


class Grouping(NamedTuple):
    """The key that selects queues, `@NAME` for a property, and the most messages of a batch; 1 sends no batches."""

    order_key: str | None
    most: int


def selector(message: Message, order_key: str | None) -> Select | None:
    """Return the selector of the message's queue, None for the next queue in turn.

    Raises: UsageError where the message lacks the property that has the key.
    """
    if order_key is None:
        return None
    key = order_key
    if order_key.startswith(_PROPERTY):
        name = order_key.removeprefix(_PROPERTY)
        if name not in message.properties:
            raise UsageError(f"the message has no property {name!r} to order it by")
        key = message.properties[name]
    return by_hash(key)


def send_all(producer: Producer, source: MessageSource, output: Output, grouping: Grouping, *, keep_going: bool) -> int:
    """Send all messages of a source, whose lines are looked at before the first one is sent unless `keep_going`."""
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
                _send_group(producer, messages, grouping)
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


def _send_group(producer: Producer, messages: list[Message], grouping: Grouping) -> None:
    queue = selector(messages[0], grouping.order_key)
    if grouping.most == 1 or is_single(messages):
        producer.send(messages[0], queue)
    else:
        producer.send_batch(messages, queue)
