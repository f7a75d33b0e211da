"""`rmqctl cat`: messages, in the order they were stored or queue by queue, and those that come."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import click

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    columns_option,
    first_or_last_option,
    output_options,
    selection_options,
    store_options,
)
from rmqctl.formats.errors import CorruptError, NotFoundError, UncertainError, counted
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
  rmqctl cat -s /data/store -t Prices --compacted  the newest message of each key
  rmqctl cat -s /data/store -t Orders --tiered     from its beginning in tiered storage
  rmqctl cat -s old --json --stored-bodies | rmqctl append -s new --from - --as-stored

\b
--format-string prints exactly the template:
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
@as_recovered_option
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
    "-f", "--follow", is_flag=True, help="Continue with new messages; -n 0: only those, -n -N: after the last N."
)
@click.option(
    "--compacted", is_flag=True, help="Of a compacted topic: the newest message of each key, from its compaction log."
)
@click.option(
    "--tiered",
    is_flag=True,
    help="Of one topic, queue by queue: first what only tiered storage has (tieredStoreFilePath, see -c).",
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
    columns: str | None,
    format_string: str | None,
    *,
    follow: bool,
    compacted: bool,
    tiered: bool,
    stored_bodies: bool,
    traces: bool,
) -> int:
    """Print messages.

    A table shows the start of each body; --json prints whole messages, one a line, as they are read. Tables show the
    records of trace messages in words.

    With --compacted, each queue's keys are those of its compaction log, which consumers of such a topic are given. An
    empty body deletes its key. Physical offset -1: the commitlog no longer has the message, as with --tiered.
    """
    from rmqctl.messages.json import TRACE_TOPIC, column_list, known_columns
    from rmqctl.messages.listing import FormatString, Listing
    from rmqctl.opening import open_store
    from rmqctl.store.answers.undispatched import queues_behind

    order = _order_of(selection.criteria.topic, order, follow=follow)
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
    if compacted and (selection.criteria.topic is None or selection.begin or selection.end is not None or follow):
        raise click.UsageError("--compacted takes one topic (-t), and neither -o, --to nor --follow")
    if tiered and (selection.criteria.topic is None or follow or compacted):
        raise click.UsageError("--tiered takes one topic (-t), and neither --compacted nor --follow")
    wanted = _Wanted(selection, limit, listing, template, damage)
    with open_store(store) as opened:
        if compacted:
            return _compacted(opened, wanted)
        if tiered:
            return _from_copies(_tiered(opened, selection, damage, is_whole=limit is None), wanted)
        if follow:
            _follow(opened, wanted)
            return _exit_code(damage)
        try:
            printed = _print(opened, wanted, order)
        except NotFoundError as error:
            criteria = selection.criteria
            raise next(iter(queues_behind(opened.files, criteria.topic_filter, criteria.queue_id)), error) from None
        report_unsearched(selection.criteria, damage)
        if order == "queue":
            is_end = selection.end is None and not (limit is not None and 0 < limit <= printed)
            _tell_behind(opened.reader, selection, damage, is_end=is_end)
        if not printed:
            _nothing(opened.reader, selection, damage)
        else:
            _tell_unmet(opened.reader, selection, output)
            _tell_unread(opened.reader, selection, damage)
    return _exit_code(damage)


class _Wanted(NamedTuple):
    """Which messages are printed, and how."""

    selection: Selection
    limit: int | None
    listing: Listing
    template: FormatString | None
    damage: ToldDamage

    def print(self, messages: Iterator[StoredMessage], events: Events) -> int:
        """Print messages as they come; how many there were."""
        from rmqctl.messages.listing import in_batches, print_formatted, print_messages

        if self.template is not None:
            return print_formatted(self.listing.output, self.template, in_batches(messages), events)
        return print_messages(self.listing, messages, events)


def _compacted(store: MessageStore, wanted: _Wanted) -> int:
    """Print the newest message of each key of a compacted topic."""
    from rmqctl.store.read.compacted import newest_messages

    events, criteria = Events(damage=wanted.damage), wanted.selection.criteria
    assert criteria.topic is not None
    newest = newest_messages(store.files, criteria.topic, criteria.queue_id, events)
    deleted = 0

    def matching() -> Iterator[StoredMessage]:
        nonlocal deleted
        for message in newest:
            if criteria.matches(message):
                deleted += not message.body
                yield message

    code = _from_copies(matching(), wanted)
    if deleted:
        wanted.listing.output.talk(f"the key of {counted(deleted, 'message')} without a body is deleted")
    return code


def _tiered(
    store: MessageStore, selection: Selection, damage: ToldDamage, *, is_whole: bool
) -> Iterator[StoredMessage]:
    """Yield the messages of a topic from the beginning of its copy in tiered storage."""
    from rmqctl.store.read.tiered import joined_messages

    # what a lost queue has behind its copy is not found by it
    _tell_behind(store.reader, selection, damage, is_end=selection.end is None and is_whole)
    try:
        yield from joined_messages(store.reader, selection, Events(damage=damage))
    except NotFoundError as error:
        raise hidden_by_damage(damage.count, error) if damage.count else error from None


def _from_copies(found: Iterator[StoredMessage], wanted: _Wanted) -> int:
    """Print messages that other files than the commitlog have, too."""
    limit, damage = wanted.limit, wanted.damage
    some = iter(deque(found, -limit)) if limit is not None and limit < 0 else itertools.islice(found, limit)
    count = wanted.print(some, Events(damage=damage))
    report_unsearched(wanted.selection.criteria, damage)
    if not count:
        matched = NotFoundError("no message matched")
        raise hidden_by_damage(max(damage.count, 1), matched) if damage.count or damage.is_uncertain else matched
    return _exit_code(damage)


def _exit_code(damage: ToldDamage) -> int:
    return exit_codes.DAMAGE_OR_NOTHING if damage.count or damage.is_uncertain else exit_codes.OK


def _order_of(topic: str | None, order: Order, *, follow: bool) -> Order:
    """Queue by queue where none is asked for and the topic is a light queue: its messages are stored in other topics,
    which the log does not list by it."""
    from rmqctl.store.queues.dispatch import LMQ_PREFIX

    is_asked = click.get_current_context().get_parameter_source("order") is click.core.ParameterSource.COMMANDLINE
    return "queue" if (topic or "").startswith(LMQ_PREFIX) and not is_asked and not follow else order


def _check(selection: Selection, limit: int | None, order: Order, follow: bool) -> None:
    if limit == 0 and not follow:
        raise click.BadParameter("0 goes with --follow: nothing but what comes", param_hint="'-n' / '--limit'")
    if follow and order != "log":
        raise click.UsageError("--follow goes along the log: leave out --order queue")
    if follow and click.get_current_context().params.get("as_recovered"):
        raise click.UsageError("--follow waits for what a broker stores: leave out --as-recovered")
    if follow and (selection.end is not None or selection.criteria.end_time is not None):
        raise click.UsageError("--follow has no end: leave out --to and -e")


def _print(store: MessageStore, wanted: _Wanted, order: Order) -> int:
    """Print what is there; how many messages there were."""
    from rmqctl.messages.listing import print_log, print_queues
    from rmqctl.opening import log_bytes
    from rmqctl.output.terminal import progress

    selection, limit, listing = wanted.selection, wanted.limit, wanted.listing
    # lines that follow one another on a terminal show that it goes on
    is_seen = listing.output.is_terminal and not selection.criteria.needs_content
    with contextlib.nullcontext() if is_seen else progress("searching", log_bytes(store.files), "bytes") as bar:
        events = Events(None if bar is None else bar.advance, wanted.damage)
        if wanted.template is None and (limit is None or limit > 0):
            print_them = print_log if order == "log" else print_queues
            return print_them(listing, store, selection, limit, events)
        return wanted.print(_first_or_last(store, selection, limit, order, events), events)


def _first_or_last(
    store: MessageStore, selection: Selection, limit: int | None, order: Order, events: Events
) -> Iterator[StoredMessage]:
    criteria, begin, end = selection.criteria, selection.begin, selection.end
    if limit is not None and limit < 0:
        return iter(store.last_messages(-limit, criteria, begin, end, order=order, events=events))
    found = store.messages(criteria, begin, end, order=order, events=events)
    return itertools.islice(found, limit)


def _follow(store: MessageStore, wanted: _Wanted) -> None:
    """Print what is there, and then what comes, until it is enough or Ctrl-C."""
    from rmqctl.messages.listing import in_batches, print_batches, print_formatted
    from rmqctl.store.log.survey import end_of_messages

    selection, limit, listing = wanted.selection, wanted.limit, wanted.listing
    log, criteria = store.files.log, selection.criteria
    end = end_of_messages(log, max(selection.begin, log.min_offset, 0))
    events = Events(damage=wanted.damage)

    def batches() -> Iterator[list[StoredMessage]]:
        if limit != 0:
            yield from in_batches(_first_or_last(store, selection._replace(end=end), limit, "log", events))
        yield from store.follow(criteria, end, events=events._replace(note=listing.output.talk))

    some = _at_most(batches(), limit if limit is not None and limit > 0 else None)
    try:
        if wanted.template is not None:
            print_formatted(listing.output, wanted.template, some, events)
        else:
            print_batches(listing, some, events)
    except Terminated:
        raise
    except KeyboardInterrupt:
        return  # there is no other end
    finally:
        # of what was there before; the follower reports what comes
        report_unsearched(criteria, wanted.damage)


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


def _tell_behind(reader: StoreReader, selection: Selection, damage: ToldDamage, *, is_end: bool) -> None:
    """Report chosen queues that are lost, and with `is_end` messages at the log's end that they lack."""
    from rmqctl.store.answers.undispatched import queues_behind

    criteria = selection.criteria
    for error in queues_behind(reader.files, criteria.topic_filter, criteria.queue_id):
        if is_end or not isinstance(error, UncertainError):
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
        raise NotFoundError(
            f"the store has no topic {named}" if topic is not None else f"the store has no topic that goes by {named}",
            hint="`rmqctl ls --topics` lists the topics",
        )
    if topic is not None and queue_id is not None and not damage.count:
        with contextlib.suppress(CorruptError):  # queues in a damaged RocksDB
            reader.queue(topic, queue_id)
    lost = reader.files.lost_log()
    if lost is not None:
        raise lost
    from rmqctl.store.answers.unread import unread_messages

    if not damage.count:
        for error in unread_messages(reader.files, topic):
            raise error
    matched = NotFoundError("no message matched")
    raise hidden_by_damage(max(damage.count, 1), matched) if damage.count or damage.is_uncertain else matched
