"""`rmqctl topics|groups create | change | delete`: entries of a store at rest, or on the brokers of a cluster."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from rmqctl.flags.options import (
    StoreLocation,
    change_options,
    group_option,
    journal_option,
    namesrv_option,
    output_options,
    release_option,
    store_options,
    tls_options,
    topic_option,
)
from rmqctl.flags.types import WholeNumber
from rmqctl.formats.errors import counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import agrees
from rmqctl.output.output import note_change, note_done
from rmqctl.store.config.config_files import MOST_QUEUES
from rmqctl.store.repair.entries import EntryChange

if TYPE_CHECKING:
    from rmqctl.network.clients.channel import Dial
    from rmqctl.network.clients.survey import EntryAt
    from rmqctl.output.output import Output
    from rmqctl.store.options import ChangeOptions
    from rmqctl.store.repair.entries import EntryReport

_LARGEST = (1 << 31) - 1
_PERMS = {"R": 4, "W": 2, "RW": 6}
_QUEUES = WholeNumber(0, MOST_QUEUES)
_SETTING_COLUMNS = ("setting", "before", "after")
_LIVE_COLUMNS = ("broker", "address", "setting", "before", "after", "state", "detail")
_LIVE_DROPPABLE = ("detail", "address")
_PAST = {"create": "created", "change": "changed", "delete": "deleted"}
Command = Callable[..., int]


class _Place(NamedTuple):
    """Where a change is made: in `store`, or with `namesrv` on masters of a cluster, all or those of these names.
    `yes`: nothing is asked."""

    store: StoreLocation
    namesrv: str | None
    dial: Dial | None
    cluster: str | None
    brokers: tuple[str, ...]
    yes: bool


def _place_options(command: Command) -> Command:
    """Add the options that say where and how the change is made; the command gets `place` and `change`."""

    @functools.wraps(command)
    def placed(
        *args: Any, store: StoreLocation, namesrv: str | None, dial: Dial | None, cluster: str | None,
        brokers: tuple[str, ...], change: ChangeOptions, **options: Any,
    ) -> int:  # fmt: skip
        context = click.get_current_context()
        source = context.get_parameter_source
        of_a_store = [name for name in ("store_path", "config_path") if source(name) == ParameterSource.COMMANDLINE]
        if namesrv is not None and (of_a_store or change.journal_in is not None):
            raise click.UsageError("-n changes brokers that run: it goes without -s, -c and --journal")
        if namesrv is None and (cluster or brokers):
            raise click.UsageError("--cluster and --broker go with -n")
        place = _Place(store, namesrv, dial, cluster, brokers, context.params["yes"])
        return command(*args, place=place, change=change, **options)

    options = (
        store_options,
        namesrv_option.but(required=False, envvar=None, help="Brokers that these name servers know, not a store."),
        tls_options,
        click.option("--cluster", metavar="NAME", help="With -n: the masters of this cluster."),
        click.option("--broker", "brokers", metavar="NAME", multiple=True, help="With -n: only this one. Repeatable."),
        change_options(journal_option),
        output_options,
    )
    for option in reversed(options):
        placed = option(placed)
    return placed


def _with_settings(*options: tuple[str, str, Any, str]) -> Callable[[Command], Command]:
    """Add options, each a flag, the name of its setting in the file, its type and help; the command gets `entry`, what
    EntryChange needs of them."""

    def added(command: Command) -> Command:
        @functools.wraps(command)
        def collected(*args: Any, attributes: str | None, release: str, **given: Any) -> int:
            settings = {name: given.pop(name) for _, name, _, _ in options}
            chosen = {name: value for name, value in settings.items() if value is not None}
            entry = {"settings": _queues_of(chosen), "attributes": attributes or "", "release": release}
            return command(*args, entry=entry, **given)

        found: Command = click.option(
            "--attributes", metavar="CHANGES", help="Attributes, as mqadmin takes them: '+message.type=FIFO,-other'."
        )(release_option(collected))
        for flag, name, kind, text in reversed(options):
            metavar = "N" if isinstance(kind, WholeNumber) else None
            found = click.option(flag, name, type=kind, metavar=metavar, default=None, help=text)(found)
        return found

    return added


class _Perm(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return perm as the file has it."""
        return (
            value
            if isinstance(value, int)
            else _PERMS[super().convert(value.upper() if isinstance(value, str) else value, param, ctx)]
        )


_topic_settings = _with_settings(
    ("--queues", "queues", _QUEUES, "Queues for reading and for writing: readQueueNums and writeQueueNums."),
    ("--read-queues", "readQueueNums", _QUEUES, "Queues that consumers read from."),
    ("--write-queues", "writeQueueNums", _QUEUES, "Queues that producers send to."),
    ("--perm", "perm", _Perm(list(_PERMS)), "Whether it may be read, written, or both."),
    ("--order/--no-order", "order", None, "An ordered topic: with -n its queues are listed at the name server."),
)
_group_settings = _with_settings(
    ("--consume/--no-consume", "consumeEnable", None, "Whether the group may consume at all."),
    ("--broadcast/--no-broadcast", "consumeBroadcastEnable", None, "Whether it may broadcast."),
    ("--from-min/--no-from-min", "consumeFromMinEnable", None, "Whether it may begin at the first message."),
    ("--notify/--no-notify", "notifyConsumerIdsChangedEnable", None, "Whether members learn of others at once."),
    ("--retry-queues", "retryQueueNums", WholeNumber(0, MOST_QUEUES), "Queues of its retry topic."),
    ("--retry-max", "retryMaxTimes", WholeNumber(-1, _LARGEST), "Attempts before a message is dead; -1: no end."),
    ("--broker-id", "brokerId", WholeNumber(0, _LARGEST), "The broker that it consumes from; 0: the master."),
    ("--slow-broker-id", "whichBrokerWhenConsumeSlowly", WholeNumber(0, _LARGEST), "The broker when it is slow."),
)
_topic = topic_option.but(required=True, help="The topic.")
_group = group_option.but(required=True, help="The consumer group.")


@click.command(
    "create",
    epilog="""\b
Examples:
  rmqctl topics create -s DIR -t Orders --queues 8 --dry-run
  rmqctl topics create -n 127.0.0.1:9876 -t Orders --queues 16 --order
  rmqctl topics create -n 127.0.0.1:9876 -t Pay --attributes +message.type=FIFO

Exit code 5: refused: the topic exists, or RocketMQ does not allow the name.""",
)
@_topic
@_topic_settings
@_place_options
def create_topic(place: _Place, output: Output, *, topic: str, entry: dict[str, Any], change: ChangeOptions) -> int:
    """Create a topic: in topics.json of a store whose broker is stopped, or with -n on running brokers.

    Without other settings it has 8 queues for reading and for writing, and both permissions.
    """
    return _done(EntryChange("topic", "create", topic, **entry), place, change, output)


@click.command(
    "change",
    epilog="""\b
Examples:
  rmqctl topics change -s DIR -t Orders --perm R
  rmqctl topics change -n 127.0.0.1:9876 -t Orders --write-queues 4

Fewer read queues hide the messages of the others from consumers: the change says which.
Exit code 1: there is no such topic.""",
)
@_topic
@_topic_settings
@_place_options
def change_topic(place: _Place, output: Output, *, topic: str, entry: dict[str, Any], change: ChangeOptions) -> int:
    """Change settings of a topic; the others stay."""
    _require_some(entry)
    if place.brokers and entry["settings"].get("order") is False:
        # brokers take `order` from the name servers' list, which the other brokers are still in
        raise click.UsageError("--no-order is for all brokers of a topic: leave out --broker")
    return _done(EntryChange("topic", "change", topic, **entry), place, change, output)


@click.command(
    "delete",
    epilog="""\b
Examples:
  rmqctl topics delete -s DIR -t Orders-old --dry-run
  rmqctl topics delete -n 127.0.0.1:9876 -t Orders-old --yes

In a store its queues and the offsets of groups stay: `rmqctl purge -t` removes them too.
Exit code 1: there is no such topic.""",
)
@_topic
@_place_options
def delete_topic(place: _Place, output: Output, *, topic: str, change: ChangeOptions) -> int:
    """Delete a topic: from topics.json of a store, or with -n from running brokers and name servers.

    A running broker removes its queues, and consumers cannot get its messages any more.
    """
    return _done(EntryChange("topic", "delete", topic), place, change, output)


@click.command(
    "create",
    epilog="""\b
Examples:
  rmqctl groups create -s DIR -g billing --retry-max 3
  rmqctl groups create -n 127.0.0.1:9876 -g billing

Exit code 5: refused: the group exists, or RocketMQ does not allow the name.""",
)
@_group
@_group_settings
@_place_options
def create_group(place: _Place, output: Output, *, group: str, entry: dict[str, Any], change: ChangeOptions) -> int:
    """Create a consumer group: in subscriptionGroup.json of a store, or with -n on running brokers."""
    return _done(EntryChange("group", "create", group, **entry), place, change, output)


@click.command(
    "change",
    epilog="""\b
Examples:
  rmqctl groups change -s DIR -g billing --no-consume
  rmqctl groups change -n 127.0.0.1:9876 -g billing --retry-max 3

Exit code 1: there is no such group.""",
)
@_group
@_group_settings
@_place_options
def change_group(place: _Place, output: Output, *, group: str, entry: dict[str, Any], change: ChangeOptions) -> int:
    """Change settings of a consumer group; the others stay."""
    _require_some(entry)
    return _done(EntryChange("group", "change", group, **entry), place, change, output)


@click.command(
    "delete",
    epilog="""\b
Examples:
  rmqctl groups delete -s DIR -g billing-old
  rmqctl groups delete -n 127.0.0.1:9876 -g billing-old --offsets --yes

Its retry topic and its dead letters stay. In a store its offsets stay as well: `rmqctl offsets delete -g`.
Exit code 1: there is no such group. 5: a broker makes the group itself, as TOOLS_CONSUMER.""",
)
@_group
@click.option("--offsets", "removes_offsets", is_flag=True, help="With -n: its offsets too.")
@_place_options
def delete_group(place: _Place, output: Output, *, group: str, removes_offsets: bool, change: ChangeOptions) -> int:
    """Delete a consumer group: from subscriptionGroup.json of a store, or with -n from running brokers."""
    if removes_offsets and place.namesrv is None:
        raise click.UsageError("--offsets goes with -n: of a store `rmqctl offsets delete -g` removes them")
    return _done(EntryChange("group", "delete", group), place, change, output, removes_offsets=removes_offsets)


def _queues_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with those that `--queues` sets."""
    both = settings.pop("queues", None)
    if both is None:
        return settings
    if {"readQueueNums", "writeQueueNums"} & set(settings):
        raise click.UsageError("--queues is both numbers: leave out --read-queues and --write-queues")
    return {**settings, "readQueueNums": both, "writeQueueNums": both}


def _require_some(entry: dict[str, Any]) -> None:
    if not entry["settings"] and not entry["attributes"]:
        raise click.UsageError("name at least one setting to change")


def _done(
    wanted: EntryChange, place: _Place, change: ChangeOptions, output: Output, *, removes_offsets: bool = False
) -> int:
    if place.namesrv is not None:
        return _on_brokers(wanted, place, change, output, removes_offsets)
    from rmqctl.opening import open_store, tell_if_open

    with open_store(place.store) as opened:
        if change.dry_run:
            tell_if_open(opened)
        report = opened.change_entry(wanted, change=change)
    note_change(report, f"{wanted.kind} {wanted.name} was {_PAST[wanted.action]}")
    _print(wanted, report, output, place.store)
    return exit_codes.OK


def _print(wanted: EntryChange, report: EntryReport, output: Output, store: StoreLocation) -> None:
    from rmqctl.reports.changes import undo_advice

    if output.is_json:
        output.record({"kind": wanted.kind, **{name: getattr(report, name) for name in report.__slots__}})
        return
    output.rows(_SETTING_COLUMNS, _differences(report.before, report.after))
    for note in report.notes:
        output.talk(f"note: {note}")
    if report.operations or report.journal:
        would = "would be " if report.dry_run else ""
        output.talk(f"{wanted.kind} {wanted.name} {would}{_PAST[wanted.action]}")
    if report.journal:
        output.talk(f"the former file is kept in {report.journal}; {undo_advice(store)} restores it")


def _differences(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return a row for each setting that an entry has, or of two entries for each that differs."""
    old, new = before or {}, after or {}
    names = [name for name in {**old, **new} if None in (before, after) or old.get(name) != new.get(name)]
    return [{"setting": name, "before": old.get(name), "after": new.get(name)} for name in names]


def _on_brokers(
    wanted: EntryChange, place: _Place, change: ChangeOptions, output: Output, removes_offsets: bool
) -> int:
    from rmqctl.network.clients.channel import SocketChannel
    from rmqctl.network.clients.client import Client
    from rmqctl.network.clients.survey import carried_out, chosen_masters, planned_at

    with contextlib.closing(Client(place.namesrv or "", place.dial or SocketChannel)) as client:
        masters = chosen_masters(client, place.cluster, place.brokers)
        planned = planned_at(client, wanted, masters)
        rows: list[EntryAt] = planned
        if not change.dry_run:
            on = counted(sum(row.state == "planned" for row in planned), "broker")
            what = f"deletes the {wanted.kind} {wanted.name} on {on}"
            if wanted.action == "delete" and not agrees(what, yes=place.yes):
                raise click.Abort
            rows = list(carried_out(client, wanted, planned, removes_offsets=removes_offsets))
    _note_brokers(wanted, rows)
    _print_rows(rows, output)
    failed = [row for row in rows if row.state == "failed"]
    if not output.is_json and not change.dry_run:
        done = sum(row.state == "done" for row in rows)
        output.talk(f"{wanted.kind} {wanted.name} {_PAST[wanted.action]} on {done} of {counted(len(rows), 'broker')}")
        if failed:
            output.talk("the same command again completes it")
    return exit_codes.UNREADABLE if failed else exit_codes.OK


def _note_brokers(wanted: EntryChange, rows: list[EntryAt]) -> None:
    brokers = [row.broker for row in rows if row.state == "done"]
    if brokers:
        note_done(f"{wanted.kind} {wanted.name} was {_PAST[wanted.action]} on {', '.join(brokers)}", brokers=brokers)


def _print_rows(rows: list[EntryAt], output: Output) -> None:
    """Print one object for each broker, in tables a row for each setting that changes there."""
    if output.is_json:
        output.rows((), [row._asdict() for row in rows])
        return
    told = []
    for row in rows:
        same = {"broker": row.broker, "address": row.address, "state": row.state, "detail": row.detail}
        told += [{**same, **one} for one in _differences(row.before, row.after)] or [same]
    output.rows(_LIVE_COLUMNS, told, droppable=_LIVE_DROPPABLE)
