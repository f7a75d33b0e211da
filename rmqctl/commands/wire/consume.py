"""`rmqctl consume`: takes messages from a broker, as a member of a group or as an onlooker."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rmqctl import exit_codes
from rmqctl.flags.options import (
    group_option,
    namesrv_option,
    output_options,
    tag_option,
    tls_options,
    topic_option,
    zone_option,
)
from rmqctl.flags.types import COUNT, TIME
from rmqctl.formats.errors import NotFoundError

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.network.clients.channel import Dial
    from rmqctl.network.clients.consumer import Where
    from rmqctl.output.output import Output

    _Parameter = click.ParamType[Any]
else:
    _Parameter = click.ParamType

# whom every broker knows, and whose offsets nobody reads
_ONLOOKER = "TOOLS_CONSUMER"


class WhereType(_Parameter):
    """first, last, or a time."""

    name = "where"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """`first` and `last` as they are, a time in ms."""
        return value if value in ("first", "last") else TIME.convert(value, param, ctx)


@click.command(
    epilog="""\b
Examples:
  rmqctl consume -n 127.0.0.1:9876 -t Orders --json
  rmqctl consume -n 127.0.0.1:9876 -t Orders --from '2h ago' --tag 'paid || refunded' --limit 10
  rmqctl consume -n 127.0.0.1:9876 -t Orders -g billing --follow --json

Without -g nothing is committed: looking takes no message away from a group. With -g the command is a member of the
group, as a push consumer is: it gets its share of the queues of TOPIC and of the group's retry topic, goes on where
the group is, and commits what it printed. Retried messages are printed too; their topic is %RETRY%GROUP. A line on
stderr names live members of the group. Members that subscribe otherwise are a refusal (exit code 5): the command would
take queues from them without reading all of these.
Exit code 1 says that there was no message."""
)
@namesrv_option
@tls_options
@topic_option.but(required=True, help="Topic to take messages of.")
@group_option.but(help="Be a member of this consumer group.")
@tag_option.but(help="Only messages with this tag, or one of these: 'TagA || TagB'.")
@click.option("--from", "begin", type=WhereType(), default="first", metavar="WHERE", show_default=True,
              help="Where to begin in queues without an offset of the group: first, last or a time.")  # fmt: skip
@zone_option
@click.option("--force", is_flag=True, help="Join although live members of the group subscribe otherwise.")
@click.option("--commit/--no-commit", default=None, help="Commit what was printed; as it is with -g.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more when the queues end; Ctrl-C ends it.")
@click.option("--limit", type=COUNT, metavar="N", help="Stop after N.")
@output_options
def consume(
    output: Output,
    namesrv: str,
    dial: Dial,
    topic: str,
    group: str | None,
    tag: str | None,
    begin: Where,
    force: bool,
    commit: bool | None,
    follow: bool,
    limit: int | None,
) -> int:
    """Print the messages of a topic as a broker gives them.

    A table shows the start of each body; --json prints whole messages, one a line, as they come.
    """
    from rmqctl.messages.listing import Listing, print_messages
    from rmqctl.network.clients.consumer import Consumer

    if commit and group is None:
        raise click.UsageError("--commit needs the group that is to have consumed the messages: -g GROUP")
    if force and group is None:
        raise click.UsageError("--force goes with -g GROUP")
    commits = group is not None if commit is None else commit
    name, joins = group or _ONLOOKER, group is not None
    with (
        Consumer(
            namesrv,
            name,
            topic,
            tag or "*",
            begin=begin,
            commit=commits,
            joins=joins,
            force=force,
            warn=output.talk,
            dial=dial,
        ) as consumer,
        contextlib.closing(consumer.messages(to_the_end=not follow)) as messages,
    ):
        count = print_messages(Listing(output), _flushed(itertools.islice(messages, limit), output))
    if not count:
        raise NotFoundError(f"topic {topic!r} has no message for {f'group {group!r}' if group else 'this'}")
    return exit_codes.OK


def _flushed(messages: Iterator[StoredMessage], output: Output) -> Iterator[StoredMessage]:
    """Messages, each printed before the next one is waited for."""
    for message in messages:
        yield message
        output.flush()
