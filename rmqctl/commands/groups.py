"""`rmqctl groups`: how far consumer groups have come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.options import StoreLocation, group_option, output_options, store_options, topic_option

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_COLUMNS = ("group", "topic", "queue_id", "offset", "max_offset", "lag", "lag_ms", "state", "detail")
_DROPPABLE = ("detail", "lag_ms", "max_offset")


@click.command(
    epilog="""\b
Examples:
  rmqctl groups -s DIR                      every group in every queue
  rmqctl groups -s DIR -g orders-consumer
  rmqctl groups -s DIR -t Orders --json     a line for each queue
  rmqctl groups -s DIR -g orders-consumer --tag 'paid || refunded'

\b
States:
  caught-up         the offset is the end of the queue
  behind            `lag` messages are not consumed; `lag_ms` lies between the first of them and the last
  before-beginning  so are these, and messages before them have expired unread
  past-end          the offset is larger than the queue's end: messages or their queue were lost
  damaged           the first message that is not consumed, or the last one, cannot be read
  unknown           `detail` says what is missing

Exit code 1: no group matched, or damage is in the way, which is named."""
)
@store_options
@group_option
@topic_option
@click.option("--tag", metavar="TAGS", help="What the group of -g takes, as you know it: 'TagA || TagB'.")
@output_options
def groups(store: StoreLocation, output: Output, group: str | None, topic: str | None, tag: str | None) -> int:
    """Say how far consumer groups have come, and how late they are.

    Offsets are those that the broker wrote last (every 5 s while it runs), ends are those of the queues. What clients
    have taken but not yet confirmed counts as not consumed. Where a group's tags are known, it is also said how many
    of the unread messages are of these: a broker keeps tags only where they were set with the group.
    """
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.opening import open_store
    from rmqctl.reports.answer import tell_answer
    from rmqctl.store.answers.groups import group_queues

    if tag is not None and group is None:
        raise click.UsageError("--tag says what a group takes: name the group with -g")
    with open_store(store) as opened:
        config = opened.files.layout.config
        hint = "`rmqctl groups` without -g and -t lists all" if group or topic else f"they are kept in {config}"
        otherwise = NotFoundError("no consumer group matched" if group or topic else "no consumer group", hint=hint)
        return tell_answer(
            output,
            _COLUMNS,
            lambda tell, on_damage: group_queues(opened.reader, group, topic, tell, on_damage, tag),
            otherwise,
            _DROPPABLE,
        )
