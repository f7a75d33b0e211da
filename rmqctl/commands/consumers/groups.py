"""`rmqctl groups`: how far consumer groups have come."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rmqctl.flags.options import (
    StoreLocation,
    group_option,
    namesrv_option,
    output_options,
    store_options,
    tls_options,
    topic_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.formats.errors import NotFoundError
    from rmqctl.network.clients.channel import Dial
    from rmqctl.output.output import Output

_COLUMNS = ("group", "topic", "queue_id", "offset", "max_offset", "lag", "lag_ms", "state", "detail")
_DROPPABLE = ("detail", "max_offset", "lag_ms")
_LIVE_COLUMNS = (
    "group", "topic", "broker", "queue_id", "offset", "max_offset", "lag", "in_flight", "clients", "state", "detail",
)  # fmt: skip
_LIVE_DROPPABLE = ("detail", "in_flight", "broker")


@click.command(
    epilog="""\b
Examples:
  rmqctl groups -s DIR                      every group in every queue
  rmqctl groups -s DIR -g orders-consumer
  rmqctl groups -s DIR -t Orders --json     a line for each queue
  rmqctl groups -s DIR -g orders-consumer --tag 'paid || refunded'
  rmqctl groups -n 127.0.0.1:9876           as the brokers of a cluster say

\b
States:
  caught-up         the offset is the end of the queue
  behind            `lag` messages are not consumed; `lag_ms` lies between the first of them and the last
  before-beginning  so are these, and messages before them have expired unread
  past-end          the offset is larger than the queue's end: messages or their queue were lost
  damaged           the first message that is not consumed, or the last one, cannot be read
  unknown           `detail` says what is missing

With -n the brokers are asked: `in_flight` messages of the lag were pulled already, `clients` members are connected, and
a queue without an offset counts as offset 0, as mqadmin consumerProgress has it.

Exit code 1: no group matched, or damage beside the answer; 7: damage may hide it; with -n,
3: a server did not answer."""
)
@store_options
@namesrv_option.but(
    required=False, envvar=None, help="Ask the brokers that these name servers know, instead of a store."
)
@tls_options
@group_option
@topic_option
@click.option("--tag", metavar="TAGS", help="What the group of -g takes, as you know it: 'TagA || TagB'.")
@output_options
def groups(
    store: StoreLocation,
    output: Output,
    namesrv: str | None,
    dial: Dial,
    group: str | None,
    topic: str | None,
    tag: str | None,
) -> int:
    """Say how far consumer groups have come, and how late they are.

    Offsets are those that the broker wrote last (every 5 s while it runs), ends are those of the queues. What clients
    have taken but not yet confirmed counts as not consumed. Where a group's tags are known, it is also said how many
    of the unread messages are of these: a broker keeps tags only where they were set with the group.
    """
    if namesrv is not None:
        source = click.get_current_context().get_parameter_source
        if ParameterSource.COMMANDLINE in (source("store_path"), source("config_path")):
            raise click.UsageError("-n asks brokers: it goes without -s and -c")
        return _live(output, namesrv, dial, group, topic)
    from rmqctl.opening import open_store
    from rmqctl.reports.answer import tell_answer

    if tag is not None and group is None:
        raise click.UsageError("--tag says what a group takes: name the group with -g")
    with open_store(store) as opened:
        otherwise = _nothing(opened.files.layout.config, is_narrowed=bool(group or topic))
        return tell_answer(
            output,
            _COLUMNS,
            lambda tell, on_damage: opened.groups(group, topic, tags=tag, tell=tell, on_damage=on_damage),
            otherwise,
            _DROPPABLE,
        )


def _nothing(config: Path, *, is_narrowed: bool) -> NotFoundError:
    """What to say where there is no row: without the file of offsets nobody knows whether there are groups."""
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.store.answers.config_offsets import CONSUMER_FILE
    from rmqctl.store.config.config_files import backup_of
    from rmqctl.store.files.presence import exists

    path = config / CONSUMER_FILE
    if not exists(path) and not exists(backup_of(path)):
        hint = "look for it in a backup or on a slave, and give it to `rmqctl offsets merge`"
        return NotFoundError("is not there: nobody knows which groups there are", file=path, hint=hint)
    if is_narrowed:
        return NotFoundError("no consumer group matched", hint="`rmqctl groups` without -g and -t lists all")
    return NotFoundError("no consumer group", hint=f"they are kept in {config}")


def _live(output: Output, namesrv: str, dial: Dial, group: str | None, topic: str | None) -> int:
    """The same as brokers say."""
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.network.clients.client import Client
    from rmqctl.network.clients.survey import groups_at
    from rmqctl.reports.unanswered import Unanswered

    unanswered = Unanswered(output)
    with contextlib.closing(Client(namesrv, dial)) as client:
        rows = (row._asdict() for row in groups_at(client, group, topic, unanswered))
        if not output.rows(_LIVE_COLUMNS, rows, droppable=_LIVE_DROPPABLE) and not unanswered.exit_code():
            hint = "`rmqctl groups -n` without -g and -t lists all" if group or topic else None
            raise NotFoundError("no consumer group matched" if group or topic else "no consumer group", hint=hint)
    return unanswered.exit_code()
