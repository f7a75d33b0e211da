"""`rmqctl cat`: messages, in the order they were stored or queue by queue."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import click

from rmqctl import exit_codes
from rmqctl.formats.errors import NotFoundError, UnsupportedError
from rmqctl.formats.wording import counted
from rmqctl.options import (
    StoreLocation,
    limit_option,
    output_options,
    selection_options,
    store_options,
)
from rmqctl.reports.damage import ToldDamage

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.read.reader import StoreReader
    from rmqctl.store.read.selection import Order


@click.command(
    epilog="""\b
Examples:
  rmqctl cat -s /data/store -n 20
  rmqctl cat -s /data/store -t Orders --tag 'paid || refunded' -b '2h ago' --json
  rmqctl cat -s /data/store -t Orders -q 3 --order queue -o 1000 -n 50
  rmqctl cat -s old --json --stored-bodies | rmqctl append -s new --from - --as-stored

Damage is named on stderr and passed; exit code 1 says that there was some, or that nothing matched."""
)
@store_options
@selection_options("From this offset on: physical in order of the log, else the queue's.", "Before this offset.")
@limit_option
@click.option(
    "--order",
    type=click.Choice(["log", "queue"]),
    default="log",
    show_default=True,
    help="As stored, or queue by queue as the consume queues lead to them.",
)
@click.option(
    "--stored-bodies", is_flag=True, help="With --json: compressed bodies also as stored, so that copies are exact."
)
@output_options
def cat(
    store: StoreLocation,
    output: Output,
    topic: str | None,
    queue_id: int | None,
    tag: str | None,
    key: str | None,
    offset: int | None,
    to_offset: int | None,
    begin: int | None,
    end: int | None,
    limit: int | None,
    order: Order,
    stored_bodies: bool,
) -> int:
    """Print messages.

    A table shows the start of each body; --json prints whole messages, one a line, as they are read.
    """
    from rmqctl.messages.listing import print_log, print_messages
    from rmqctl.opening import open_store
    from rmqctl.store.read.message_filter import Criteria
    from rmqctl.store.read.selection import Selection

    criteria = Criteria(topic, queue_id, tag, key, begin, end)
    _ = criteria.tag_filter  # a malformed expression is said before anything is opened
    selection = Selection(criteria, offset or 0, to_offset)
    damage = ToldDamage(output)
    with open_store(store) as opened:
        if order == "log":
            count = print_log(output, opened, selection, limit, stored_bodies, damage)
        else:
            messages = opened.messages(criteria, offset or 0, to_offset, order=order, on_damage=damage)
            count = print_messages(output, itertools.islice(messages, limit), stored_bodies)
        if count == 0:
            _nothing(opened.reader, topic, queue_id, damage)
    return exit_codes.DAMAGE_OR_NOTHING if damage.count else exit_codes.OK


def _nothing(reader: StoreReader, topic: str | None, queue_id: int | None, damage: ToldDamage) -> None:
    if topic is not None and reader.has_topic(topic) is False:
        raise NotFoundError(f"the store has no topic {topic!r}", hint="`rmqctl ls --topics` lists the topics")
    if topic is not None and queue_id is not None and not damage.count:
        with contextlib.suppress(UnsupportedError):  # queues in a RocksDB, which cannot be asked
            reader.queue(topic, queue_id)
    missing = reader.files.missing_log()
    if missing is not None:
        raise NotFoundError(missing, hint="bring it back, or name its place: -c broker.conf with storePathCommitLog")
    found = f", and {counted(damage.count, 'place is', 'places are')} damaged" if damage.count else ""
    raise NotFoundError(f"no message matched{found}")
