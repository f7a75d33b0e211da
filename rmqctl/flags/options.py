"""The flags that verbs share: one spelling, one help text and one meaning each, as users of mqadmin know them.

Each is a decorator. `@topic_option` adds the flag unchanged; `@topic_option.but(required=True)` changes what click gets
of it. `store_options` and `output_options` add several flags and hand the command one object.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.flags.types import (
    COUNT,
    COUNT_FROM_AN_END,
    INDEX_SIZE,
    JAVA_INT,
    OFFSET,
    PEM,
    QUEUE_FILE_SIZE,
    QUEUE_ID,
    TIME,
    InputFile,
    keep_zone,
)
from rmqctl.formats.errors import UsageError
from rmqctl.opening import STORE_VARIABLE, StoreLocation, configured_store, locate_store, naming_config
from rmqctl.output.output import FORMATS, Output, talk
from rmqctl.output.terminal import NO_PAGER
from rmqctl.store.config.releases import VERSIONS

if TYPE_CHECKING:
    from rmqctl.store.files.layout import StoreLayout
    from rmqctl.store.read.filter import BySql, TopicFilter

# What a shell is offered for topics, groups, codes and changes: read from the store that the line names so far.
#
# Whoever presses TAB waits: a look has a moment, and so many names at most. Whatever is wrong, nothing is offered.

SECONDS = 1.0
"""A store on a disk that hangs is given so long."""
MOST = 500
# so many names are looked at to find those
_LOOKED_AT = 20_000
_LONGEST_REST = 40


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics with queues or with a configuration that begin so."""
    return _offered(lambda: _topics(_layout(context)), incomplete)


def groups(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Consumer groups with offsets or with a configuration that begin so."""
    return _offered(lambda: _groups(_layout(context).config), incomplete)


def changes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of the changes made to the store that begin so, the last one first."""
    return _offered(lambda: _changes(_layout(context)), incomplete, in_order=True)


def codes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Codes of findings that begin so."""

    def known() -> Iterable[str]:
        from rmqctl.store.check.catalogue import catalogue

        return catalogue()

    return _offered(known, incomplete.upper())


def _offered(look: Callable[[], Iterable[str]], incomplete: str, *, in_order: bool = False) -> list[str]:
    """The names that begin so; none if they cannot be had, or not in time."""
    found: list[str] = []

    def search() -> None:
        try:
            names = (name for name in islice(look(), _LOOKED_AT) if name.startswith(incomplete) and _is_word(name))
            found.extend(islice(dict.fromkeys(names), MOST))
        except Exception:  # noqa: BLE001 - a line that is being typed is no place for an error
            found.clear()

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    thread.join(SECONDS)
    # as far as it has come
    return list(found) if in_order else sorted(found)


def _is_word(name: str) -> bool:
    """Whether a shell can be handed it as one word of a line."""
    return name.isprintable() and not any(map(str.isspace, name))


def _layout(context: click.Context) -> StoreLayout:
    """The store that the line names so far, as the command itself would find it."""
    from rmqctl.store.files.layout import StoreLayout

    root = locate_store(context.params.get("store_path"), context.params.get("config_path")).path
    return StoreLayout(root, (root / "commitlog",))


def _topics(layout: StoreLayout) -> Iterator[str]:
    from rmqctl.store.read.filter import configured_topics

    for folder in (layout.consumequeue, layout.batchconsumequeue):
        yield from _names_in(folder)
    yield from configured_topics(layout.config)


def _groups(config: Path) -> Iterator[str]:
    from rmqctl.store.answers.config_offsets import CONSUMER_FILE, OFFSET_TABLE, offset_key
    from rmqctl.store.config.config_files import read_config

    subscriptions = read_config(config / "subscriptionGroup.json") or {}
    yield from subscriptions.get("subscriptionGroupTable", {})
    for key in (read_config(config / CONSUMER_FILE) or {}).get(OFFSET_TABLE, {}):
        whose = offset_key(key)
        if whose is not None:
            yield whose.group


def _changes(layout: StoreLayout) -> list[str]:
    from rmqctl.store.message_store import MessageStore

    with MessageStore.open(layout.root) as store:
        return [change.id for change in reversed(store.changes())]


def _names_in(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in entries if entry.is_dir())
    except OSError:
        return


__all__ = ["STORE_VARIABLE", "StoreLocation", "locate_store"]  # for those who have the flags from here

Command = TypeVar("Command", bound=Callable[..., Any])


class Flag:
    """One reusable option."""

    def __init__(self, *names: str, **attributes: Any) -> None:
        """`names` and `attributes` are click.option's."""
        self._names = names
        self._attributes = attributes

    def __call__(self, command: Command) -> Command:
        """Add the flag to a command."""
        return click.option(*self._names, **self._attributes)(command)

    def but(self, **attributes: Any) -> Flag:
        """The same flag with some of click's attributes changed."""
        return Flag(*self._names, **{**self._attributes, **attributes})


topic_option = Flag("-t", "--topic", metavar="TOPIC", help="Only this topic.", shell_complete=topics)
topics_option = Flag(
    "-t",
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=topics,
    help="Topic name or glob ('Order*'). Repeatable.",
)
no_system_topics_option = Flag("--no-system-topics", is_flag=True, help="Exclude system topics (rmq_sys_* and others).")
columns_option = Flag("--columns", metavar="NAME,…", help="Print these columns, named as in `cat --json`.")
group_option = Flag("-g", "--group", metavar="GROUP", help="Only this consumer group.", shell_complete=groups)
queue_option = Flag("-q", "--queue", "queue_id", type=QUEUE_ID, metavar="N", help="Only this queue of the topic.")
offset_option = Flag("-o", "--offset", type=OFFSET, metavar="OFFSET", help="An offset.")
key_option = Flag("-k", "--key", metavar="KEY", help="Only messages with this key.")
id_option = Flag("-i", "--id", "message_id", metavar="ID", help="A message id: offset id or unique key.")
tag_option = Flag("--tag", metavar="TAG", help="Only messages with this tag.")
tags_option = tag_option.but(help="Only messages with this tag, or one of these: 'TagA || TagB'.")
filter_option = Flag(
    "--filter", "sql", metavar="SQL92", help="Only messages whose properties pass: \"a > 5 AND b IN ('x', 'y')\"."
)
grep_option = Flag("--grep", metavar="REGEX", help="Only messages with this in the body or in a property (NAME=VALUE).")
limit_option = Flag("-n", "--limit", type=COUNT, metavar="N", help="Stop after N.", show_default=True)
first_or_last_option = Flag(
    "-n", "--limit", type=COUNT_FROM_AN_END, metavar="N", help="Print at most N messages; -N prints the last N."
)
begin_option = Flag(
    "-b",
    "--begin",
    type=TIME,
    metavar="TIME",
    help="Start time: ISO 8601, 'today 9:00', yesterday, '2h ago', -2h, ms or seconds.",
)
zone_option = Flag(
    "--tz",
    metavar="ZONE",
    is_eager=True,
    expose_value=False,
    callback=keep_zone,
    help="Time zone for times given without one: Europe/Berlin, +08:00, local.  [default: UTC]",
)
release_option = Flag(
    "--as",
    "release",
    type=click.Choice(VERSIONS),
    default="5.3.3",
    show_default=True,
    help="The version of RocketMQ whose rules for names apply.",
)
end_option = Flag("-e", "--end", type=TIME, metavar="TIME", help="End time.")
yes_option = Flag("-y", "--yes", is_flag=True, help="Skip the confirmation prompt.")
no_journal_option = Flag(
    "--no-journal", "no_journal", is_flag=True, help="Do not keep removed data: frees the space, cannot be undone."
)
queue_file_size_option = Flag(
    "--queue-file-size",
    type=QUEUE_FILE_SIZE,
    metavar="BYTES",
    help="Size of new consume queue files, or `default`. Needed if no queue file is left and -c does not give it.",
)
index_size_option = Flag(
    "--index-size",
    type=INDEX_SIZE,
    metavar="SLOTS,ENTRIES",
    help="Size of new index files, or `default`. Needed if no index file is left and -c does not give it.",
)
journal_option = Flag(
    "--journal",
    "journal_in",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep undo data below DIR, for example on another disk.",
)
below_confirm_option = Flag(
    "--below-confirm", is_flag=True, help="Under a controller: also cut what in-sync replicas have confirmed."
)
plot_option = Flag("--plot", "is_plot", is_flag=True, help="Draw the table as bars, with a time as a line.")
dry_run_option = Flag("--dry-run", is_flag=True, help="Print the plan and change nothing.")

namesrv_option = Flag(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT",
    required=True,
    help="Name servers, separated by semicolons; else $NAMESRV_ADDR.",
)

source_option = Flag(
    "--from",
    "source",
    type=InputFile(),
    metavar="FILE",
    help="JSON Lines as cat --json prints, Parquet or Arrow as export writes.",
)
keep_going_option = Flag("--keep-going", is_flag=True, help="With --from: skip invalid lines instead of stopping.")

_store_option = Flag(
    "-s",
    "--store",
    "store_path",
    envvar=STORE_VARIABLE,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Store directory; else ${STORE_VARIABLE}, else broker.conf, else ~/store.",
)
config_option = Flag(
    "-c",
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="A broker.conf: sizes, paths, delay levels. Without it sizes are inferred from the files.",
)
_json_option = Flag("--json", "as_json", is_flag=True, help="JSON Lines for lists, one object for summaries.")
_format_option = Flag(
    "--format", "output_format", type=click.Choice(FORMATS), default="table", help="Output format.", show_default=True
)


_no_pager_option = Flag(NO_PAGER, is_flag=True, expose_value=False, help="Do not use a pager.")
_bytes_option = Flag(
    "--bytes", "digits", is_flag=True, help="Print exact bytes and milliseconds instead of 1.2 GiB and 2d 4h."
)


def store_options(command: Command) -> Command:
    """Add -s/--store and -c/--config; the command gets them resolved as its argument `store: StoreLocation`."""

    @functools.wraps(command)
    def resolved(*args: Any, store_path: Path | None, config_path: Path | None, **options: Any) -> Any:
        store_path, config_path = _of_one_place(store_path, config_path)
        with naming_config(config_path):
            return command(*args, store=locate_store(store_path, config_path), **options)

    return _store_option(config_option(resolved))  # type: ignore[return-value]


def _of_one_place(store_path: Path | None, config_path: Path | None) -> tuple[Path | None, Path | None]:
    """Return what says which store, without what config.toml gives for another one.

    A broker.conf of the command line names its store before the file does, and a store that the command line or the
    environment names is not described by the broker.conf of the file's store.
    """
    context = click.get_current_context()
    of_store, of_config = (context.get_parameter_source(name) for name in ("store_path", "config_path"))
    from_file = click.core.ParameterSource.DEFAULT_MAP
    if of_store is from_file and config_path is not None and of_config is not from_file:
        return configured_store(config_path) or store_path, config_path
    has_both = of_config is from_file and "store_path" in (context.default_map or {})
    if has_both and of_store is not from_file:
        return store_path, None
    return store_path, config_path


def as_recovered_option(command: Command) -> Command:
    """Add --as-recovered below `store_options`: the command gets the store as a recovery would leave it."""

    @functools.wraps(command)
    def viewing(*args: Any, as_recovered: bool, store: StoreLocation, **options: Any) -> Any:
        if not as_recovered:
            return command(*args, store=store, **options)
        if not str(options.get("master") or "local").startswith("local"):
            raise click.UsageError("--as-recovered reads a temporary folder of this machine: leave out --master")
        from rmqctl.opening import open_store, recovered

        with open_store(store) as opened, recovered(opened.files, store) as view:
            return command(*args, store=view, **options)

    flag = Flag("--as-recovered", is_flag=True, help="Read the store as `rmqctl recover` would leave it.")
    return flag(viewing)  # type: ignore[return-value]


UNREAD = "that the group has not read"


def change_options(*flags: Flag, unread: str = UNREAD) -> Callable[[Command], Command]:
    """Add --dry-run, `flags` (--no-journal, --journal) and -y/--yes; the command gets `change: ChangeOptions`. `unread`
    describes the messages that the change passes over, where it asks."""

    def added(command: Command) -> Command:
        @functools.wraps(command)
        def changing(
            *args: Any,
            dry_run: bool,
            yes: bool,
            no_journal: bool = False,
            journal_in: Path | None = None,
            **options: Any,
        ) -> Any:
            from rmqctl.output.outcome import confirm_loss
            from rmqctl.store.options import ChangeOptions

            if no_journal and journal_in is not None:
                raise UsageError("--no-journal keeps nothing, and --journal says where", hint="leave one of them out")
            confirm = confirm_loss(yes, unread)
            change = ChangeOptions(dry_run, not no_journal, sys.argv[1:], journal_in, confirm=confirm)
            return command(*args, change=change, **options)

        all_flags = (dry_run_option, *flags, yes_option)
        return functools.reduce(lambda made, flag: flag(made), reversed(all_flags), changing)  # type: ignore[return-value]

    return added


def rebuild_options(command: Command) -> Command:
    """Add what a change takes that may write queues and index: the sizes of new files, and `change_options`."""
    changing = change_options(no_journal_option, journal_option)(command)
    return queue_file_size_option(index_size_option(changing))


def tls_options(command: Command) -> Command:
    """Add --tls, --tls-ca, --tls-check-name and --credentials; the command gets `dial`, the way to reach servers
    (rmqctl.network.clients.channel)."""

    @functools.wraps(command)
    def dialling(
        *args: Any, tls: bool, tls_ca: Path | None, tls_check_name: bool, credentials: Path | None, **options: Any
    ) -> Any:
        if tls_check_name and tls_ca is None:
            raise click.UsageError("--tls-check-name goes with --tls-ca")
        if options.get("namesrv", "") is None:
            # nobody is to be reached
            return command(*args, dial=None, **options)
        from rmqctl.network.clients.channel import SocketChannel, dial_encrypted
        from rmqctl.network.remoting.tls import client_context

        is_encrypted = tls or tls_ca is not None
        encrypted = dial_encrypted(client_context(tls_ca, check_name=tls_check_name)) if is_encrypted else None
        dial = encrypted or SocketChannel
        if credentials is not None:
            from rmqctl.network.clients.channel import dial_signed, read_credentials

            dial = dial_signed(dial, read_credentials(credentials))
        return command(*args, dial=dial, **options)

    flag = Flag("--tls", is_flag=True, help="Use TLS without verifying certificates.")
    by_ca = Flag("--tls-ca", type=PEM, metavar="FILE", help="Use TLS and verify certificates with this CA file.")
    name = Flag("--tls-check-name", is_flag=True, help="Also verify the host name in the certificate.")
    user = Flag(
        "--credentials", type=PEM, envvar="RMQCTL_CREDENTIALS", metavar="FILE",
        help="Sign requests: a file like tools.yml, with accessKey and secretKey. [env: RMQCTL_CREDENTIALS]",
    )  # fmt: skip
    return flag(by_ca(name(user(dialling))))  # type: ignore[return-value]


def message_options(command: Command) -> Command:
    """Add what describes one message but for its topic and queue; `one_message` makes it of them."""
    flags = (
        Flag("--tags", metavar="TAG", help="Tag of the message."),
        key_option.but(multiple=True, help="Key of the message. Repeatable."),
        Flag("--property", "properties", metavar="NAME=VALUE", multiple=True, help="Property. Repeatable."),
        Flag("--flag", type=JAVA_INT, default=0, metavar="N", help="The producer's own flag."),
        Flag("--body", type=click.UNPROCESSED, metavar="TEXT", help="The body, as UTF-8."),
        Flag("--body-file", type=InputFile(), metavar="FILE", help="The body from a file, `-` for stdin."),
    )
    return functools.reduce(lambda made, flag: flag(made), reversed(flags), command)


def by_sql(expression: str) -> BySql:
    """Return the subscription by an SQL92 filter, and say what RocketMQ ignores of it."""
    from rmqctl.store.read.filter import BySql, sql_filter

    tell_ignored(sql_filter(expression).ignored)
    return BySql(expression)


def tell_ignored(rest: str) -> None:
    """Say what follows an SQL92 filter, such as LIKE, which RocketMQ does not have: nothing looks at it."""
    if rest.strip():
        talk(f"the filter ends before {rest.strip()[:_LONGEST_REST]!r}: RocketMQ ignores the rest")


def selection_options(offset_help: str, to_help: str) -> Callable[[Command], Command]:
    """Add what chooses messages of a log: -t, --no-system-topics, -q, --tag, -k, --grep, --filter, -o, --to, -b and -e.

    The command gets all of it as its argument `selection: Selection`; what is malformed is said before it begins.
    """
    flags = (
        queue_option,
        tags_option,
        key_option,
        grep_option,
        filter_option,
        offset_option.but(help=offset_help),
        Flag("--to", "to_offset", type=OFFSET, metavar="OFFSET", help=to_help),
    )

    def added(command: Command) -> Command:
        @functools.wraps(command)
        def chosen(
            *args: Any,
            topics: TopicFilter,
            queue_id: int | None,
            tag: str | None,
            key: str | None,
            grep: str | None,
            sql: str | None,
            offset: int | None,
            to_offset: int | None,
            begin: int | None,
            end: int | None,
            **options: Any,
        ) -> Any:
            from rmqctl.store.read.filter import Criteria
            from rmqctl.store.read.select import Selection

            criteria = Criteria(topics, queue_id, tag, key, begin, end, grep=grep, sql=sql)
            _ = criteria.tag_filter
            if criteria.sql is not None:
                tell_ignored(criteria.sql.ignored)
            return command(*args, selection=Selection(criteria, offset or 0, to_offset), **options)

        with_flags = functools.reduce(lambda made, flag: flag(made), reversed(flags), time_options(chosen))
        return topics_options(with_flags)  # type: ignore[return-value]

    return added


def topics_options(command: Command) -> Command:
    """Add -t/--topic, which may be repeated, and --no-system-topics; the command gets `topics: TopicFilter`."""

    @functools.wraps(command)
    def filtered(*args: Any, topics: tuple[str, ...], no_system_topics: bool, **options: Any) -> Any:
        from rmqctl.store.read.filter import TopicFilter

        return command(*args, topics=TopicFilter(topics, system_topics=not no_system_topics), **options)

    return topics_option(no_system_topics_option(filtered))  # type: ignore[return-value]


def output_options(command: Command) -> Command:
    """Add --json, --format and --bytes; the command gets them as its argument `output: Output`, which is flushed after
    it."""

    @functools.wraps(command)
    def printing(*args: Any, as_json: bool, output_format: Any, digits: bool, **options: Any) -> Any:
        source = click.get_current_context().get_parameter_source("output_format")
        if as_json and output_format != "json" and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--json and --format {output_format} contradict each other: give one of them")
        output = Output(as_json, output_format, digits=digits)
        result = command(*args, output=output, **options)
        output.end()
        return result

    return _json_option(_format_option(_bytes_option(_no_pager_option(printing))))  # type: ignore[return-value]


def summary_options(command: Command) -> Command:
    """Add --json; the command gets its argument `output: Output`, for verbs whose data goes elsewhere."""

    @functools.wraps(command)
    def printing(*args: Any, as_json: bool, **options: Any) -> Any:
        output = Output(as_json)
        result = command(*args, output=output, **options)
        output.flush()
        return result

    return _json_option.but(help="The summary as one JSON object.")(printing)  # type: ignore[return-value]


def time_options(command: Command) -> Command:
    """Add -b/--begin, -e/--end and --tz; the command gets `begin` and `end`, milliseconds or None, begin <= end."""

    @functools.wraps(command)
    def ordered(*args: Any, begin: int | None, end: int | None, **options: Any) -> Any:
        if begin is not None and end is not None and begin > end:
            raise click.BadParameter("it is before --begin", param_hint="'-e' / '--end'")
        return command(*args, begin=begin, end=end, **options)

    return begin_option(end_option(zone_option(ordered)))  # type: ignore[return-value]
