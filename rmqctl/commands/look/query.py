"""`rmqctl query`: messages by key, id, offset or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.finding import KEY_LIMIT, Question, find_and_show
from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    grep_option,
    id_option,
    key_option,
    limit_option,
    offset_option,
    output_options,
    queue_option,
    store_options,
    tags_option,
    time_options,
    topics_options,
)
from rmqctl.flags.types import TIME

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.queues.consumequeue import Boundary
    from rmqctl.store.read.filter import TopicFilter


@click.command(
    epilog="""\b
Examples:
  rmqctl query -s DIR -t Orders -k order-17          by key, newest first
  rmqctl query -s DIR -t 'Order*' -t Bills -k 17     in several topics
  rmqctl query -s DIR -k 17 --tag 'paid || open' --grep 'total=0'
  rmqctl query -s DIR -i 7F00000100002A9F0000000000001234
  rmqctl query -s DIR -o 4660                        by physical offset
  rmqctl query -s DIR -t Orders -q 3 -o 1000         by queue offset
  rmqctl query -s DIR -k C0A8010165... --traces      who sent and consumed it, by its traces
  rmqctl query -s DIR -t Orders --at '2h ago'        the offset of each queue at that time

Exit code 1: nothing found, or damage beside the result; 7: not found, and damage may hide it."""
)
@store_options
@as_recovered_option
@topics_options
@queue_option.but(help="The queue of the topic.")
@offset_option.but(help="A physical offset; with -t and -q a queue offset.")
@key_option.but(help="A key of the message, or its unique key.")
@tags_option
@grep_option
@id_option
@click.option("--at", type=TIME, metavar="TIME", help="The offset of each queue of -t for this time.")
@click.option(
    "--boundary",
    type=click.Choice(["lower", "upper"]),
    default="lower",
    show_default=True,
    help="With --at: the first message at or after the time, or the last one at or before it.",
)
@time_options
@limit_option.but(help=f"Stop after N messages (keys: {KEY_LIMIT}, queue offsets: 1).")
@click.option("--traces", is_flag=True, help="With -k: show the message traces of a message id or key.")
@click.option("--scan", is_flag=True, help="Search the commitlog where the index is missing, short or damaged.")
@output_options
def query(
    store: StoreLocation,
    output: Output,
    topics: TopicFilter,
    queue_id: int | None,
    offset: int | None,
    key: str | None,
    tag: str | None,
    grep: str | None,
    message_id: str | None,
    at: int | None,
    boundary: Boundary,
    begin: int | None,
    end: int | None,
    limit: int | None,
    traces: bool,
    scan: bool,
) -> int:
    """Find messages by key, id, offset or time.

    Where -o leads to no valid message, the error names the nearest valid ones before and after it, searching at most
    64 MiB on each side (`--json`: `nearest_before`, `nearest_after`, `searched_from`, `searched_to`).
    """
    topic = topics.only
    if topic is None and not topics.is_all and key is None:
        raise click.UsageError("several topics, patterns and --no-system-topics go with -k: name one topic")
    is_search = any(value is not None for value in (tag, grep, begin, end))
    if is_search and key is None:
        raise click.UsageError(
            "--tag, --grep, -b and -e go with -k: without a key "
            "`rmqctl cat -t TOPIC --tag TAG --grep TEXT -b TIME -e TIME` searches; a queue's offset for a time is --at"
        )
    _check(topic, queue_id, offset, key, message_id, at)
    if traces and (key is None or (topic is None and not topics.is_all)):
        raise click.UsageError(
            "--traces goes with -k; -t names one trace topic, RMQ_SYS_TRACE_TOPIC if it is not given"
        )
    wanted = Question(message_id, key, offset, at, topic, queue_id, begin, end, boundary, limit, scan)
    wanted = wanted._replace(tags=tag, grep=grep, traces=traces)
    if traces and topic is None:
        from rmqctl.messages.json import TRACE_TOPIC

        wanted = wanted._replace(topic=TRACE_TOPIC)
    if topic is None and not topics.is_all:
        wanted = wanted._replace(topics=topics)
    return find_and_show(store, output, wanted)


def _check(
    topic: str | None, queue_id: int | None, offset: int | None, key: str | None, message_id: str | None, at: int | None
) -> None:
    asked = [
        name for name, value in (("-k", key), ("-i", message_id), ("-o", offset), ("--at", at)) if value is not None
    ]
    if len(asked) != 1:
        what = "one of -k, -i, -o and --at" if not asked else f"only one of {' and '.join(asked)}"
        raise click.UsageError(f"say what to look for with {what}")
    if queue_id is not None and (topic is None or asked[0] in ("-k", "-i")):
        raise click.UsageError("-q needs -t, and goes with -o or --at")
    if asked[0] == "-o" and (topic is None) != (queue_id is None):
        raise click.UsageError("-o alone is a physical offset; for a queue offset give both -t and -q")
    if asked[0] == "--at" and topic is None:
        raise click.UsageError("--at needs -t")
