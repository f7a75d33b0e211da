"""`rmqctl purge`: remove topics with their queues, configuration and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import (
    StoreLocation,
    change_options,
    journal_option,
    output_options,
    store_options,
    topic_option,
)
from rmqctl.formats.errors import counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_change

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions
    from rmqctl.store.repair.entries import PurgeReport

_COLUMNS = ("topic", "reason", "configured", "queues", "messages", "offsets")


@click.command(
    epilog="""\b
Examples:
  rmqctl purge -s /data/store -t Orders-old --dry-run
  rmqctl purge -s /data/store -t Orders-old -t Orders-older
  rmqctl purge -s /data/store --orphans --dry-run
  rmqctl undo -s /data/store                          bring them back

\b
While the broker runs:
  mqadmin deleteTopic -n NAMESRV -c CLUSTER -t TOPIC

Exit code 1: the store does not know the topic. 5: refused, or a decision is needed."""
)
@store_options
@topic_option.but(multiple=True, help="Remove this topic. Repeatable.")
@click.option("--orphans", is_flag=True, help="Remove all orphaned topics.")
@change_options(journal_option, unread="that consumers cannot get any more")
@output_options
def purge(store: StoreLocation, output: Output, *, topic: tuple[str, ...], orphans: bool, change: ChangeOptions) -> int:
    """Remove topics: their queues, their entries in topics.json and the offsets of groups.

    Messages stay in the commitlog until its files expire. Until then a recovery after a crash and `rebuild` make the
    queues again; `check` (RMQ-CFG-043) and `predict` name such topics. Delayed and half messages of a topic are not
    removed. A topic that is created again begins at queue offset 0 (RMQ-CQ-032).

    Orphans are topics with queues that topics.json does not name, and entries of topics.json without a queue, a message
    or a delayed message. Topics of the broker itself, retry topics and dead-letter topics without queues stay. Offsets
    of unknown groups: `rmqctl offsets delete --orphans`.
    """
    from rmqctl.opening import log_bytes, open_store, tell_if_open
    from rmqctl.output.terminal import progress

    if orphans == bool(topic):
        raise click.UsageError("name topics with -t, or --orphans alone")
    with open_store(store) as opened:
        if change.dry_run:
            tell_if_open(opened)
        with progress("reading the commitlog", log_bytes(opened.files), "bytes") as bar:
            report = opened.purge(topic, orphans=orphans, change=change.reporting(bar.advance))
    note_change(report, "the topics were removed")
    _print(report, output, store)
    return exit_codes.OK


def _print(report: PurgeReport, output: Output, store: StoreLocation) -> None:
    from rmqctl.reports.changes import print_operations, undo_advice

    rows = [one._asdict() for one in report.topics]
    if output.is_json:
        output.record({**{name: getattr(report, name) for name in report.__slots__}, "topics": rows})
        return
    output.rows(_COLUMNS, rows, droppable=("reason", "configured"))
    if report.dry_run:
        print_operations(report.operations, output)
    for note in report.notes:
        output.talk(f"note: {note}")
    if not rows:
        output.talk("no topic is orphaned")
        return
    would = "would be removed" if report.dry_run else "removed"
    output.talk(f"{counted(len(rows), 'topic')} {would}")
    if report.journal:
        output.talk(f"the removed files are kept in {report.journal}; {undo_advice(store)} brings them back")
