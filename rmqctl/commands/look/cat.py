"""`rmqctl cat`: messages, in the order they were stored or queue by queue, and those that come."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import (
    StoreLocation,
    columns_option,
    first_or_last_option,
    output_options,
    selection_options,
    store_options,
)
from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import Terminated, ToldDamage, hidden_by_damage, report_unsearched
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.formats.message import StoredMessage
    from rmqctl.messages.listing import FormatString, Listing
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.read.reader import StoreReader
    from rmqctl.store.read.select import Order, Selection


@click.command(
    epilog="""\b
Examples:
  rmqctl cat -s /data/store -n -20                 the last 20
  rmqctl cat -s /data/store -t Orders --tag 'paid || refunded' -b '2h ago' --json
  rmqctl cat -s /data/store -t 'Order*' -t Bills --grep 'order-17|timeout'
  rmqctl cat -s /data/store --filter "amount > 100 AND region IN ('cn', 'us')"
  rmqctl cat -s /data/store --no-system-topics -n 0 --follow
  rmqctl cat -s /data/store -t Orders -q 3 --order queue -o 1000 -n 50
  rmqctl cat -s /data/store --columns topic,queue_id,queue_offset,store_time,keys --format csv
  rmqctl cat -s /data/store -t Orders --format-string '%t[%q]@%o %k %s\\n'
  rmqctl cat -s old --json --stored-bodies | rmqctl append -s new --from - --as-stored

\b
--format-string, where nothing is added that it does not say:
  %t topic                    %k keys (KEYS)               %s body, unpacked
  %q queue (also %p)          %K its bytes, -1 without     %S its bytes
  %o queue offset             %g tag                       %R the same as 4 bytes
  %O physical offset          %u unique key                %T store time in ms
  %i message id               %h properties NAME=VALUE,…   %B born time in ms
  %% a percent sign           \\n \\r \\t \\0 \\\\ and \\xNN, a byte in hex
Into a file or a pipe bytes go as they are; on a terminal control characters are shown as escapes.

Damage is reported on stderr and skipped. Exit code 1: damage was found beside the messages, or nothing matched;
7: nothing matched, and damage may be why. --follow continues where a broker rolls, cleans or restarts; Ctrl-C ends
it with exit code 0."""
)
@store_options
@selection_options("From this offset on: physical in order of the log, else the queue's.", "Before this offset.")
@first_or_last_option
@click.option(
    "--order",
    type=click.Choice(["log", "queue"]),
    default="log",
    show_default=True,
    help="Commitlog order, or queue by queue.",
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Continue with new messages; -n 0: only those, -n -N: after the last N.",
)
@columns_option
@click.option("--format-string", metavar="TEXT", help="Print each message by a kcat-style template.")
@click.option(
    "--stored-bodies", is_flag=True, help="With --json: compressed bodies also as stored, so that copies are exact."
)
@click.option(
    "--traces",
    is_flag=True,
    help="With --json: the records of trace messages as a field; of -t TOPIC, else of RMQ_SYS_TRACE_TOPIC.",
)
@output_options
def cat(
    store: StoreLocation,
    output: Output,
    selection: Selection,
    limit: int | None,
    order: Order,
    follow: bool,
    columns: str | None,
    format_string: str | None,
    stored_bodies: bool,
    traces: bool,
) -> int:
    """Print messages.

    A table shows the start of each body; --json prints whole messages, one a line, as they are read. Tables show the
    records of trace messages in words.
    """
    from rmqctl.messages.json import column_list, known_columns
    from rmqctl.messages.listing import FormatString, Listing
    from rmqctl.messages.traces import TRACE_TOPIC
    from rmqctl.opening import open_store

    _check(selection, limit, order, follow)
    trace_topic = (selection.criteria.topic or TRACE_TOPIC) if traces else None
    names = known_columns(column_list(columns))
    listing = Listing(output, names, stored_bodies=stored_bodies, trace_topic=trace_topic)
    if traces and (format_string is not None or output.format == "csv"):
        raise click.UsageError("--traces goes with tables and --json")
    template = None if format_string is None else FormatString(format_string)
    if template is not None and (columns is not None or stored_bodies or output.format != "table"):
        raise click.UsageError("--format-string says all that is printed: leave out --columns, --json and --format")
    damage = ToldDamage(output)
    with open_store(store, needs_messages=True) as opened:
        if follow:
            _follow(opened, selection, limit, listing, template, damage)
            return _exit_code(damage)
        printed = _print(opened, selection, limit, order, listing, template, damage)
        report_unsearched(selection.criteria, damage)
        if not printed:
            _nothing(opened.reader, selection, damage)
        else:
            _tell_unmet(opened.reader, selection, output)
            _tell_unread(opened.reader, selection, damage)
    return _exit_code(damage)


def _exit_code(damage: ToldDamage) -> int:
    return exit_codes.DAMAGE_OR_NOTHING if damage.count or damage.is_uncertain else exit_codes.OK


def _check(selection: Selection, limit: int | None, order: Order, follow: bool) -> None:
    if limit == 0 and not follow:
        raise click.BadParameter("0 goes with --follow: nothing but what comes", param_hint="'-n' / '--limit'")
    if follow and order != "log":
        raise click.UsageError("--follow goes along the log: leave out --order queue")
    if follow and (selection.end is not None or selection.criteria.end_time is not None):
        raise click.UsageError("--follow has no end: leave out --to and -e")


def _print(
    store: MessageStore,
    selection: Selection,
    limit: int | None,
    order: Order,
    listing: Listing,
    template: FormatString | None,
    damage: ToldDamage,
) -> int:
    """Print what is there; how many messages there were."""
    from rmqctl.messages.listing import in_batches, print_formatted, print_log, print_messages
    from rmqctl.opening import log_bytes
    from rmqctl.output.progress import progress

    # lines that follow one another on a terminal show that it goes on
    is_seen = listing.output.is_terminal and not selection.criteria.needs_content
    with contextlib.nullcontext() if is_seen else progress("searching", log_bytes(store.files), "bytes") as bar:
        events = Events(None if bar is None else bar.advance, damage)
        if order == "log" and template is None and (limit is None or limit > 0):
            return print_log(listing, store, selection, limit, events)
        messages = _first_or_last(store, selection, limit, order, events)
        if template is not None:
            return print_formatted(listing.output, template, in_batches(messages), events)
        return print_messages(listing, messages, events)


def _first_or_last(
    store: MessageStore, selection: Selection, limit: int | None, order: Order, events: Events
) -> Iterator[StoredMessage]:
    criteria, begin, end = selection.criteria, selection.begin, selection.end
    if limit is not None and limit < 0:
        return iter(store.last_messages(-limit, criteria, begin, end, order=order, events=events))
    found = store.messages(criteria, begin, end, order=order, events=events)
    return itertools.islice(found, limit)


def _follow(
    store: MessageStore,
    selection: Selection,
    limit: int | None,
    listing: Listing,
    template: FormatString | None,
    damage: ToldDamage,
) -> None:
    """Print what is there, and then what comes, until it is enough or Ctrl-C."""
    from dataclasses import replace

    from rmqctl.messages.listing import in_batches, print_batches, print_formatted
    from rmqctl.store.log.survey import end_of_messages

    log, criteria = store.files.log, selection.criteria
    end = end_of_messages(log, max(selection.begin, log.min_offset, 0))

    events = Events(damage=damage)

    def batches() -> Iterator[list[StoredMessage]]:
        if limit != 0:
            yield from in_batches(_first_or_last(store, replace(selection, end=end), limit, "log", events))
        yield from store.follow(criteria, end, events=events._replace(note=listing.output.talk))

    wanted = _at_most(batches(), limit if limit is not None and limit > 0 else None)
    try:
        if template is not None:
            print_formatted(listing.output, template, wanted, events)
        else:
            print_batches(listing, wanted, events)
    except Terminated:
        raise
    except KeyboardInterrupt:
        return  # there is no other end
    finally:
        # of what was there before; the follower reports what comes
        report_unsearched(criteria, damage)


def _at_most(batches: Iterator[list[StoredMessage]], count: int | None) -> Iterator[list[StoredMessage]]:
    for batch in batches:
        yield batch[:count]
        if count is not None:
            count -= len(batch)
            if count <= 0:
                return


def _tell_unread(reader: StoreReader, selection: Selection, damage: ToldDamage) -> None:
    """Report messages of the topic that is asked for which only a log has that is not read yet."""
    if selection.criteria.topic is not None:
        from rmqctl.store.answers.unread import unread_messages

        for error in unread_messages(reader.files, selection.criteria.topic):
            damage(error)


def _tell_unmet(reader: StoreReader, selection: Selection, output: Output) -> None:
    """Where several topics are asked for: which of the names nothing goes by."""
    from rmqctl.store.read.filter import unmet_names

    topics = selection.criteria.topic_filter
    if len(topics.names) > 1:
        for name in unmet_names(reader.files, topics):
            output.talk(f"no topic goes by {name!r}")


def _nothing(reader: StoreReader, selection: Selection, damage: ToldDamage) -> None:
    from rmqctl.store.read.filter import unmet_names

    criteria = selection.criteria
    topic, queue_id = criteria.topic, criteria.queue_id
    unmet = unmet_names(reader.files, criteria.topic_filter)
    if unmet and len(unmet) == len(criteria.topic_filter.names):
        named = ", ".join(map(repr, unmet))
        what = f"no topic {named}" if topic is not None else f"no topic that goes by {named}"
        raise NotFoundError(f"the store has {what}", hint="`rmqctl ls --topics` lists the topics")
    if topic is not None and queue_id is not None and not damage.count:
        with contextlib.suppress(CorruptError):  # queues in a damaged RocksDB
            reader.queue(topic, queue_id)
    missing = reader.files.missing_log()
    if missing is not None:
        raise NotFoundError(missing, hint="bring it back, or name its place: -c broker.conf with storePathCommitLog")
    from rmqctl.store.answers.unread import unread_messages

    if not damage.count:
        for error in unread_messages(reader.files, topic):
            raise error
    matched = NotFoundError("no message matched")
    raise hidden_by_damage(damage.count, matched) if damage.count else matched
