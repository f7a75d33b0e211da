"""`rmqctl where`: where a message is, and who has read it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    group_option,
    limit_option,
    output_options,
    store_options,
    topic_option,
)

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.answers.where import NameKind


@click.command(
    epilog="""\b
Examples:
  rmqctl where -s DIR order-17               a key, or a unique key
  rmqctl where -s DIR order-17 -t Orders -g billing
  rmqctl where -s DIR 7F00000100002A9F0000000000001234
  rmqctl where -s DIR 4660                   a physical offset
  rmqctl where -s DIR Orders 3 1000          topic, queue and queue offset
  rmqctl where -s DIR order-17 --json | jq -r '.state, .sentence'

\b
States; the most serious one is shown:
  damaged      it cannot be read
  expired      it was removed with its old commitlog file
  absent       no such message, and no damage that could hide it
  no-slot      it is stored, but its queue does not have it: no group receives it
  pending      a half message: neither committed nor rolled back
  rolled-back, gave-up   a half message that consumers never see
  cancelled, waiting, overdue   it is delayed: recalled, not due, or due
  not-delivered   it waits in the timer, and no broker delivers it
  dead         it is a dead letter of a group
  retrying     a group failed on it and will get it again
  blocked      a group is stuck at a damaged message
  unread       a group has not read it yet
  unknown      the sentence says what is missing
  filtered     a group's filter excludes it
  read         every group has read past it
  stored       it is in its queue, and no group of the topic is known

\b
Evidence, as stages and their states, in the order of a message's life:
  stored   good, again, damaged, expired, absent, unknown
  queue    there, missing, wrong, impossible, superseded, none, unknown
  index    there, missing, none, damaged, unknown
  delay    delivered, waiting, overdue, not-delivered, superseded, cancelled, unknown
  half     committed, rolled-back, superseded, gave-up, pending, unknown
  group    passed, not-reached, past-end, blocked, popped, in-flight, unacknowledged, unknown
  filter   taken, passed-over, unknown
  retry    read, unread, waiting, overdue, unknown
  dead     given-up
  expiry   kept, due, last-file, unknown

A filter is known only if the broker stores it (SQL92, or set with the group), or by --tag.

--json prints an object for each message: the question, `state`, `sentence`, the message's names, `groups` (group,
state, detail) and `evidence` (stage, state, detail, place; `timestamp` in ms: stored, due, given up, expires;
`group_offset`, and `distance`: the number of messages before it, negative for a group that is past it).

Exit code 1: no such message, or damage beside the answer; 7: not found, and damage may hide it."""
)
@click.argument("words", nargs=-1, required=True, metavar="KEY | ID | OFFSET | TOPIC QUEUE OFFSET")
@store_options
@as_recovered_option
@topic_option.but(help="Only messages that were sent to this topic.")
@group_option.but(multiple=True, help="Only this consumer group; may be repeated.")
@click.option("--tag", metavar="TAGS", help="Tag expression of the groups of -g: 'TagA || TagB'.")
@click.option(
    "--by",
    type=click.Choice(["key", "offset"]),
    help="Treat the argument only as a key, or only as an offset or offset id.",
)
@limit_option.but(default=10, help="At most N messages of a key.")
@output_options
def where(
    store: StoreLocation,
    output: Output,
    words: tuple[str, ...],
    topic: str | None,
    group: tuple[str, ...],
    tag: str | None,
    by: NameKind | None,
    limit: int,
) -> int:
    """Trace a message: where it is stored and which groups consumed it.

    Prints one sentence, then the evidence: frame, queue, index, delay or transaction, each group's offset, filter,
    retries and dead letter, and when it expires. Copies and retries of a message count as one. If the index is
    unreliable, the commitlog is searched.
    """
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.outcome import ToldDamage
    from rmqctl.output.terminal import progress
    from rmqctl.output.times import now_ms
    from rmqctl.reports.consumers import tell_whereabouts
    from rmqctl.store.answers.where import WhereQuestion
    from rmqctl.store.answers.where import where as whereabouts_of
    from rmqctl.store.options import Events

    if tag is not None and not group:
        raise click.UsageError("--tag says what a group takes: name the group with -g")
    question = WhereQuestion(words, now_ms(), topic, group, tag, by, limit)
    with open_store(store) as opened:
        damage = ToldDamage(output)
        total = log_bytes(opened.files)
        with progress("searching the commitlog", total, "bytes") as bar:
            reader = opened.reader.telling(Events(bar.advance, damage, output.talk))
            found = list(whereabouts_of(reader, question))
    return tell_whereabouts(output, found, damage.count, is_uncertain=damage.is_uncertain)
