"""`rmqctl groups`: how far consumer groups have come; its actions are in commands/wire/entries.py."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    group_option,
    namesrv_option,
    output_options,
    plot_option,
    store_options,
    tls_options,
    topic_option,
)
from rmqctl.formats.errors import NotFoundError, counted
from rmqctl.main import ListingGroup, Verb
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from rmqctl.formats.errors import NotFoundError
    from rmqctl.network.clients.channel import Dial
    from rmqctl.output.output import Output
    from rmqctl.reports.consumers import WantedGroups
    from rmqctl.store.answers.groups import GroupQueue
    from rmqctl.store.store_files import StoreFiles

_COLUMNS = ("group", "topic", "queue_id", "offset", "max_offset", "lag", "lag_ms", "state", "detail")
_DROPPABLE = ("detail", "max_offset", "lag_ms")
_LIVE_COLUMNS = (
    "group", "topic", "broker", "queue_id", "offset", "max_offset", "lag", "in_flight", "clients", "state", "detail",
)  # fmt: skip
_LIVE_DROPPABLE = ("detail", "in_flight", "broker")
_ENTRIES = "rmqctl.commands.wire.entries"
_OFFSETS = "rmqctl.commands.consumers.offsets_change"
_ACTIONS = {
    "create": Verb(f"{_ENTRIES}:create_group", "change", "A new group."),
    "change": Verb(f"{_ENTRIES}:change_group", "change", "Retries, permissions, attributes."),
    "delete": Verb(f"{_ENTRIES}:delete_group", "change", "Without its offsets."),
    "pop-release": Verb(f"{_OFFSETS}:pop_release", "change", "Hand out again what is in flight by POP."),
    "pop-finish": Verb(f"{_OFFSETS}:pop_finish", "change", "Take an ordered pop for consumed."),
}


@click.command(
    "groups",
    epilog="""\b
Actions, of a store at rest or with -n of running brokers (`rmqctl groups ACTION --help`):
  rmqctl groups create -s DIR -g billing --retry-max 3
  rmqctl groups change -s DIR -g billing --no-consume
  rmqctl groups delete -s DIR -g billing-old
  rmqctl groups pop-release -s DIR -g fifo -q 0    or pop-finish

\b
Examples:
  rmqctl groups -s DIR                      a row for each group and topic, the largest lag first
  rmqctl groups -s DIR --behind --no-orphans -t 'Order*'
  rmqctl groups -s DIR -g orders-consumer   a row for each queue
  rmqctl groups -s DIR -t Orders --json     a line for each queue
  rmqctl groups -s DIR -g orders-consumer --tag 'paid || refunded'
  rmqctl groups -s DIR --pop                groups that consume by POP: in flight, overdue, locks, restart
  rmqctl groups -s DIR --pop -g mailer      each message in flight, until when, which attempt
  rmqctl groups -n 127.0.0.1:9876           as the brokers of a cluster say

\b
States:
  caught-up         the offset is the end of the queue
  behind            `lag` messages are not consumed; `lag_ms` is the time from the first to the last
  before-beginning  `lag` messages are unread, and earlier ones expired unread
  past-end          the offset is larger than the queue's end: messages or their queue were lost
  damaged           the first message that is not consumed, or the last one, cannot be read
  unknown           `detail` says what is missing

\b
With --pop:
  in-flight     handed out and not acknowledged: not visible to others until the time shown
  overdue       that time has passed: revive puts a copy into `next topic` some seconds after a broker runs
  acknowledged  consumed; revive has not processed the record yet
  lost          the timer has lost the record: no broker hands the message out again

With -n the brokers are asked: `in_flight` messages of the lag were pulled already, `clients` members are connected, and
a queue without an offset counts as offset 0, as mqadmin consumerProgress has it.

Exit code 1: no group matched, or damage beside the answer; 7: damage may hide it; with -n,
3: a server did not answer.""",
)
@store_options
@as_recovered_option
@namesrv_option.but(
    required=False, envvar=None, help="Ask the brokers that these name servers know, instead of a store."
)
@tls_options
@group_option.but(help="Group name or glob ('order-*').")
@topic_option.but(help="Topic name or glob ('Order*').")
@click.option("--queues", "by_queue", is_flag=True, help="One row for each queue; the default with -g GROUP.")
@click.option("--behind", is_flag=True, help="Only queues with lag.")
@click.option("--all", "shows_all", is_flag=True, help="Include the groups of brokers and tools.")
@click.option("--no-orphans", is_flag=True, help="Leave out groups and topics that the configuration does not name.")
@click.option("--pop", "by_pop", is_flag=True, help="Show messages in flight by POP; with -g GROUP each of them.")
@click.option("--tag", metavar="TAGS", help="Tag expression that the group of -g subscribes with: 'TagA || TagB'.")
@plot_option.but(help="Draw the lag as bars.")
@output_options
def _groups(
    store: StoreLocation,
    output: Output,
    *,
    namesrv: str | None,
    dial: Dial,
    group: str | None,
    topic: str | None,
    by_queue: bool,
    behind: bool,
    shows_all: bool,
    no_orphans: bool,
    by_pop: bool,
    tag: str | None,
    is_plot: bool,
) -> int:
    """Show consumer group progress and lag.

    A table has one row for each group and topic, the largest lag first, and with -g GROUP or --queues one for each
    queue. --json and csv always have one for each queue. Offsets are those that the broker wrote last (every 5 s while
    it runs), ends are those of the queues. Messages that clients hold without an acknowledgement, by POP too, count as
    not consumed. If the tags of a group are known, unread messages with these tags are counted too: a broker stores
    tags only if they were set with the group.
    """
    from rmqctl.reports.consumers import WantedGroups, is_pattern

    wanted = WantedGroups(group, topic, behind, shows_all)
    by_queue = by_queue or output.format != "table" or (group is not None and not is_pattern(group))
    if by_pop and (namesrv is not None or behind or tag is not None or no_orphans or is_plot):
        raise click.UsageError("--pop goes with -g, -t and --all alone")
    if by_pop:
        from rmqctl.opening import open_store
        from rmqctl.reports.consumers import tell_popped

        with open_store(store) as opened:
            return tell_popped(opened, output, wanted)
    if is_plot:
        from rmqctl.output.plot import Plot, joined

        output.draw(Plot("lag in messages", "lag", joined("group", "topic", "broker", "queue_id")))
    if namesrv is not None:
        source = click.get_current_context().get_parameter_source
        if ParameterSource.COMMANDLINE in (source("store_path"), source("config_path")):
            raise click.UsageError("-n asks brokers: it goes without -s and -c")
        if no_orphans:
            raise click.UsageError("--no-orphans goes by a store's configuration: it goes without -n")
        return _live(output, namesrv, dial, wanted, by_queue)
    if tag is not None and (group is None or is_pattern(group)):
        raise click.UsageError("--tag is the subscription of one group: name the group with -g")
    return _of_store(store, output, wanted, by_queue, tag, no_orphans=no_orphans)


def _of_store(
    store: StoreLocation, output: Output, wanted: WantedGroups, by_queue: bool, tag: str | None, *, no_orphans: bool
) -> int:
    from rmqctl.opening import open_store
    from rmqctl.output.outcome import tell_answer
    from rmqctl.reports.consumers import TOPIC_COLUMNS, by_topic, exact
    from rmqctl.store.answers.config_offsets import KnownNames, OffsetKey

    hidden: set[str] = set()
    orphans: set[OffsetKey] = set()
    with open_store(store) as opened:
        names = KnownNames.of(opened.files) if no_orphans else None

        def is_wanted(row: GroupQueue) -> bool:
            owner = OffsetKey(row.topic or "", row.group, row.is_broadcast)
            is_orphan = names is not None and (
                names.lacks_group(row.group) or bool(row.topic and names.orphaned(owner))
            )
            orphans.update([owner] if is_orphan else ())
            return not is_orphan

        def ask(events: Events) -> Iterable[dict[str, Any]]:
            found = opened.groups(exact(wanted.group), exact(wanted.topic), tags=tag, events=events)
            rows = wanted.chosen((row._asdict() for row in found if is_wanted(row)), hidden)
            if names is not None and names.groups is None:
                events.noted(f"{names.why_unknown()}: no group is known to be an orphan")
            return rows if by_queue else by_topic(rows)

        otherwise = _nothing(opened.files, wanted)
        columns = _COLUMNS if by_queue else TOPIC_COLUMNS
        code = tell_answer(output, columns, ask, otherwise, _DROPPABLE)
    if orphans and not output.is_json:
        output.talk(f"{counted(len(orphans), 'orphan')} not shown: `rmqctl offsets delete --orphans` removes them")
    if hidden and not output.is_json:
        output.talk(f"{counted(len(hidden), 'group')} of brokers and tools not shown: --all shows them")
    return code


def _nothing(files: StoreFiles, wanted: WantedGroups) -> NotFoundError:
    """Return the message without any row: without the file of offsets the groups are unknown."""
    from rmqctl.store.answers.config_offsets import CONSUMER_FILE
    from rmqctl.store.config.config_files import backup_of, in_database, offsets_home
    from rmqctl.store.files.reading import exists, has_entries

    config = files.layout.config
    usual = path = config / CONSUMER_FILE
    is_known = has_entries(config) and (exists(usual) or exists(backup_of(usual)))
    if not is_known and has_entries(config):
        path = offsets_home(config, files.config).path
        is_known = exists(path) or exists(backup_of(path)) or in_database(path) is not None
    if not is_known:
        hint = "look for it in a backup or on a slave, and give it to `rmqctl offsets merge`"
        return NotFoundError("is not there: the consumer groups are unknown", file=path, hint=hint)
    if wanted.only_behind:
        return NotFoundError("no consumer group is behind")
    if wanted.group or wanted.topic:
        return NotFoundError("no consumer group matched", hint="`rmqctl groups` without -g and -t lists all")
    return NotFoundError("no consumer group", hint=f"they are kept in {config}")


def _live(output: Output, namesrv: str, dial: Dial, wanted: WantedGroups, by_queue: bool) -> int:
    """The same as brokers say."""
    from rmqctl.network.clients.client import Client
    from rmqctl.network.clients.survey import groups_at
    from rmqctl.output.outcome import Unanswered
    from rmqctl.reports.consumers import LIVE_TOPIC_COLUMNS, by_topic, exact

    unanswered = Unanswered(output)
    with contextlib.closing(Client(namesrv, dial)) as client:
        found = groups_at(client, exact(wanted.group), exact(wanted.topic), unanswered)
        rows = wanted.chosen((row._asdict() for row in found), set())
        columns = _LIVE_COLUMNS if by_queue else LIVE_TOPIC_COLUMNS
        shown = output.rows(columns, rows if by_queue else by_topic(rows), droppable=_LIVE_DROPPABLE)
        if not shown and not unanswered.exit_code():
            is_narrowed = bool(wanted.group or wanted.topic or wanted.only_behind)
            hint = "`rmqctl groups -n` without -g and -t lists all" if is_narrowed else None
            raise NotFoundError("no consumer group matched" if is_narrowed else "no consumer group", hint=hint)
    return unanswered.exit_code()


groups = ListingGroup(_groups, verbs=_ACTIONS)
