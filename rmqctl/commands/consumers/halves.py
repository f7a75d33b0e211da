"""`rmqctl halves`: transactional messages without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, as_recovered_option, output_options, store_options

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_COLUMNS = (
    "queue_offset",
    "state",
    "born_timestamp",
    "age_ms",
    "checks",
    "producer_group",
    "target_topic",
    "target_queue_id",
    "unique_key",
    "detail",
)
_DROPPABLE = ("detail", "target_queue_id", "unique_key", "age_ms")


@click.command(
    epilog="""\b
Examples:
  rmqctl halves -s DIR
  rmqctl halves -s DIR --json | jq -r .producer_group | sort | uniq -c

\b
States:
  pending    neither committed nor rolled back: the broker asks a producer of the group again and again
  expired    too old (fileReservedTime) or asked too often (transactionCheckMax): the next check gives it up
  committed  the message is in its topic, but the broker does not know and asks: the producer may commit it twice
  ended      an earlier copy was rolled back, or committed and has expired; the broker asks anyway
  unknown    a message that may show how it ended is damaged
  damaged    the half message itself cannot be read

Exit code 1: every transaction has its end, or damage beside the answer; 7: damage may hide it."""
)
@store_options
@as_recovered_option
@output_options
def halves(store: StoreLocation, output: Output) -> int:
    """List transactional messages that are neither committed nor rolled back.

    Each time that the broker asks producers about a message, it stores a copy; only the last one is listed. Marks,
    which a broker writes up to 3 s later, show how a transaction ended; the index also shows a commit.
    """
    from rmqctl.formats.errors import NotFoundError
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import tell_answer
    from rmqctl.output.times import now_ms

    with open_store(store) as opened:
        return tell_answer(
            output,
            _COLUMNS,
            lambda events: opened.halves(now=now_ms(), events=events),
            NotFoundError("no transaction is without its end"),
            _DROPPABLE,
        )
