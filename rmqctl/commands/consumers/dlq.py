"""`rmqctl dlq`: messages that consumer groups gave up, listed and given to them once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, group_option, output_options, store_options, topic_option
from rmqctl.main import Verb, VerbGroup

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_COLUMNS = (
    "group",
    "queue_offset",
    "state",
    "origin_topic",
    "origin_id",
    "attempts",
    "last_attempt_timestamp",
    "keys",
    "unique_key",
    "detail",
)
_DROPPABLE = ("detail", "unique_key", "keys", "state")


@click.command(
    "list",
    epilog="""\b
Examples:
  rmqctl dlq list -s DIR
  rmqctl dlq list -s DIR -g orders-consumer -t Orders
  rmqctl dlq list -s DIR --json | jq -r .origin_id | xargs -n 1 rmqctl query -s DIR -i

Exit code 1: no dead letter matched, or damage beside the answer; 7: damage may hide it.""",
)
@store_options
@group_option
@topic_option.but(help="Only messages that came from this topic.")
@output_options
def list_letters(store: StoreLocation, output: Output, group: str | None, topic: str | None) -> int:
    """List the messages that consumer groups gave up (topics %DLQ%GROUP).

    Each with the topic and the id of the message that it was first, how often it was consumed in vain, and when it
    was given up.
    """
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.opening import open_store
    from rmqctl.reports.answer import tell_answer

    with open_store(store, needs_messages=True) as opened:
        otherwise = NotFoundError("no dead letter matched" if group or topic else "no group has given up a message")
        return tell_answer(
            output,
            _COLUMNS,
            lambda _, on_damage: opened.dead_letters(group, topic, on_damage=on_damage),
            otherwise,
            _DROPPABLE,
        )


dlq = VerbGroup(
    "dlq",
    verbs={
        "list": Verb("rmqctl.commands.consumers.dlq:list_letters", "look", "What was given up, and what it was first."),
        "redrive": Verb("rmqctl.commands.consumers.dlq_redrive:redrive", "change", "Give it to its group once more."),
    },
    subcommand_metavar="ACTION [ARGS]...",
    help="Messages that consumer groups gave up (topics %DLQ%GROUP).",
)
