"""The flags that verbs share: one spelling, one help text and one meaning each, as users of mqadmin know them.

Each is a decorator. `@topic_option` adds the flag as it stands; `@topic_option.but(required=True)` changes what
click is told about it. `store_options` and `output_options` add several flags and hand the command one object.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqctl.formats.errors import UsageError
from rmqctl.opening import STORE_VARIABLE, StoreLocation, locate_store
from rmqctl.output.output import FORMATS, Output
from rmqctl.output.times import parse_time

if TYPE_CHECKING:
    _TimeParameter = click.ParamType[int]
    _TextParameter = click.ParamType[str]
else:
    _TimeParameter = _TextParameter = click.ParamType  # older releases of click cannot be subscripted

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


class TimeType(_TimeParameter):
    """A point in time, as rmqctl.times understands it, as milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds; a usage error that names the option if `value` is no time."""
        if isinstance(value, int):
            return value
        try:
            return parse_time(value)
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


class TextType(_TextParameter):
    """Text as it will be stored or looked for: UTF-8, whatever the locale says of the command line."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; a usage error that names the option for bytes that are not UTF-8."""
        text = value if isinstance(value, str) else str(value)
        if text.isascii():
            return text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            pass
        else:
            return text
        # bytes that the locale's encoding does not know were kept as they are
        try:
            return os.fsencode(text).decode("utf-8")
        except UnicodeError:
            self.fail(f"{text.encode('utf-8', 'backslashreplace').decode()!r} is not UTF-8 text", param, ctx)


TEXT = TextType()


class QueueFileSize(_TimeParameter):
    """Bytes of a consume queue file, or `default` for RocketMQ's own."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """What was written as a number of bytes, at least one unit."""
        from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE, UNIT_SIZE

        if value == "default":
            return DEFAULT_FILE_SIZE
        size = click.IntRange(UNIT_SIZE, 0x7FFFFFFF).convert(value, param, ctx)
        return -(-int(size) // UNIT_SIZE) * UNIT_SIZE


TIME = TimeType()
PEM = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
OFFSET = click.IntRange(min=0)

topic_option = Flag("-t", "--topic", metavar="TOPIC", help="Only this topic.")
group_option = Flag("-g", "--group", metavar="GROUP", help="Only this consumer group.")
queue_option = Flag("-q", "--queue", "queue_id", type=OFFSET, metavar="N", help="Only this queue of the topic.")
offset_option = Flag("-o", "--offset", type=OFFSET, metavar="OFFSET", help="An offset.")
key_option = Flag("-k", "--key", metavar="KEY", help="Only messages with this key.")
id_option = Flag("-i", "--id", "message_id", metavar="ID", help="A message id: offset id or unique key.")
tag_option = Flag("--tag", metavar="TAG", help="Only messages with this tag.")
limit_option = Flag("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N.", show_default=True)
begin_option = Flag(
    "-b", "--begin", type=TIME, metavar="TIME", help="From this time on: ms, ISO 8601 (UTC), or '2h ago'."
)
end_option = Flag("-e", "--end", type=TIME, metavar="TIME", help="Up to this time.")
yes_option = Flag("-y", "--yes", is_flag=True, help="Do not ask.")
no_journal_option = Flag(
    "--no-journal", "no_journal", is_flag=True, help="Keep nothing of what is removed: no undo, and its space is free."
)
queue_file_size_option = Flag(
    "--queue-file-size",
    type=QueueFileSize(),
    metavar="BYTES",
    help="Of new consume queue files (mappedFileSizeConsumeQueue), or `default`: RocketMQ's own. Needed where no queue "
    "file is left and -c does not say it.",
)
journal_option = Flag(
    "--journal",
    "journal_in",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep what is removed or overwritten below DIR, which may be on another disk, not beside the store.",
)
dry_run_option = Flag("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")

namesrv_option = Flag(
    "-n",
    "--namesrv",
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT",
    required=True,
    help="Name servers, separated by semicolons; else $NAMESRV_ADDR, as for mqadmin.",
)

source_option = Flag(
    "--from",
    "source",
    type=click.File("rb"),
    metavar="FILE",
    help="JSON Lines as cat --json prints, Parquet or Arrow as export writes.",
)
keep_going_option = Flag(
    "--keep-going", is_flag=True, help="With --from: leave out bad lines, else one of them stops it all."
)

_store_option = Flag(
    "-s",
    "--store",
    "store_path",
    envvar=STORE_VARIABLE,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"The store; else ${STORE_VARIABLE}, else what broker.conf says, else ~/store.",
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
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="table",
    help="How to print data.",
    show_default=True,
)


def store_options(command: Command) -> Command:
    """Add -s/--store and -c/--config; the command gets them resolved as its argument `store: StoreLocation`."""

    @functools.wraps(command)
    def resolved(*args: Any, store_path: Path | None, config_path: Path | None, **options: Any) -> Any:
        return command(*args, store=locate_store(store_path, config_path), **options)

    return _store_option(config_option(resolved))  # type: ignore[return-value]


def tls_options(command: Command) -> Command:
    """Add --tls and --tls-ca; the command gets `dial`, the way to reach servers (rmqctl.network.clients.channel)."""

    @functools.wraps(command)
    def dialling(*args: Any, tls: bool, tls_ca: Path | None, **options: Any) -> Any:
        if options.get("namesrv", "") is None:
            # nobody is to be reached
            return command(*args, dial=None, **options)
        from rmqctl.network.clients.sockets import SocketChannel, dial_encrypted
        from rmqctl.network.remoting.tls import client_context

        encrypted = dial_encrypted(client_context(tls_ca)) if tls or tls_ca is not None else None
        return command(*args, dial=encrypted or SocketChannel, **options)

    flag = Flag("--tls", is_flag=True, help="Speak TLS, whatever certificate servers show.")
    signed = Flag("--tls-ca", type=PEM, metavar="FILE", help="The same, with servers that these authorities signed.")
    return flag(signed(dialling))  # type: ignore[return-value]


def message_options(command: Command) -> Command:
    """Add what describes one message but for its topic and queue; `one_message` makes it of them."""
    flags = (
        Flag("--tags", metavar="TAG", help="Tag of the message."),
        key_option.but(multiple=True, help="A key of the message; may be repeated."),
        Flag("--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property; may be repeated."),
        Flag("--flag", type=int, default=0, metavar="N", help="The producer's own flag."),
        Flag("--body", type=click.UNPROCESSED, metavar="TEXT", help="The body, as UTF-8."),
        Flag("--body-file", type=click.File("rb"), metavar="FILE", help="The body from a file, `-` for stdin."),
    )
    return functools.reduce(lambda made, flag: flag(made), reversed(flags), command)


def selection_options(offset_help: str, to_help: str) -> Callable[[Command], Command]:
    """Add what chooses messages of a log: -t, -q, --tag, -k, -o, --to, -b and -e. The command gets `topic`,
    `queue_id`, `tag`, `key`, `offset`, `to_offset`, and `begin` and `end` as of `time_options`."""
    flags = (
        topic_option,
        queue_option,
        tag_option.but(help="Only messages with this tag, or one of these: 'TagA || TagB'."),
        key_option,
        offset_option.but(help=offset_help),
        Flag("--to", "to_offset", type=OFFSET, metavar="OFFSET", help=to_help),
    )

    def added(command: Command) -> Command:
        return functools.reduce(lambda made, flag: flag(made), reversed(flags), time_options(command))

    return added


def output_options(command: Command) -> Command:
    """Add --json and --format; the command gets them as its argument `output: Output`, which is flushed after it."""

    @functools.wraps(command)
    def printing(*args: Any, as_json: bool, output_format: Any, **options: Any) -> Any:
        source = click.get_current_context().get_parameter_source("output_format")
        if as_json and output_format != "json" and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--json and --format {output_format} contradict each other: give one of them")
        output = Output(as_json, output_format)
        result = command(*args, output=output, **options)
        output.flush()
        return result

    return _json_option(_format_option(printing))  # type: ignore[return-value]


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
    """Add -b/--begin and -e/--end; the command gets `begin` and `end`, each milliseconds or None, begin <= end."""

    @functools.wraps(command)
    def ordered(*args: Any, begin: int | None, end: int | None, **options: Any) -> Any:
        if begin is not None and end is not None and begin > end:
            raise click.BadParameter("it lies before --begin", param_hint="'-e' / '--end'")
        return command(*args, begin=begin, end=end, **options)

    return begin_option(end_option(ordered))  # type: ignore[return-value]
