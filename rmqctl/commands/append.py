"""`rmqctl append`: stores one message given by flags, or many from JSON Lines."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from formats.errors import UsageError, WriteFailedError
from rmqctl import exit_codes
from rmqctl.options import StoreLocation, key_option, output_options, queue_option, store_options, topic_option

if TYPE_CHECKING:
    from formats.message import Message
    from rmqctl.output import Output
    from store.message_store import MessageStore
    from store.write.put import PutResult

_CHUNK = 256
_SPOOL_IN_MEMORY = 64 * 1024 * 1024
# beyond this, bad lines are only counted on stderr
_TOLD = 20


@click.command(
    epilog="""\b
Examples:
  rmqctl append -s /data/store -t Orders -q 1 --tags paid -k order-7 --body '{"id":7}'
  rmqctl cat -s old --json | rmqctl append -s new --create --from -
  rmqctl cat -s old --json --stored-bodies | rmqctl append -s new --create --from - --as-stored

The store must be whole and not in use: append never repairs. Exit code 5 names what to do first."""
)
@store_options
@topic_option.but(help="Topic of the message.")
@queue_option.but(help="Queue of the topic; 0 if not given.")
@click.option("--tags", metavar="TAG", help="Tag of the message.")
@key_option.but(multiple=True, help="A key of the message; may be repeated.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property; may be repeated.")
@click.option("--flag", type=int, default=0, metavar="N", help="The producer's own flag.")
@click.option("--body", metavar="TEXT", help="The body, as UTF-8.")
@click.option("--body-file", type=click.File("rb"), metavar="FILE", help="The body from a file, `-` for stdin.")
@click.option("--from", "source", type=click.File("rb"), metavar="FILE", help="JSON Lines, as cat --json prints.")
@click.option("--as-stored", is_flag=True, help="With --from: keep store time and store host too (an exact copy).")
@click.option("--keep-going", is_flag=True, help="With --from: leave out bad lines, else one of them stops it all.")
@click.option("--create", is_flag=True, help="Make a new store if there is none.")
@output_options
def append(
    store: StoreLocation,
    output: Output,
    topic: str | None,
    queue_id: int | None,
    tags: str | None,
    key: tuple[str, ...],
    properties: tuple[str, ...],
    flag: int,
    body: str | None,
    body_file: IO[bytes] | None,
    source: IO[bytes] | None,
    as_stored: bool,
    keep_going: bool,
    create: bool,
) -> int:
    """Store one message, or many from JSON Lines.

    What a producer sets is kept: topic, queue, flag, properties, body, born time and host. The message ends in the
    commitlog, its consume queue and the index, flushed to disk, before the command returns.
    """
    if source is None:
        if as_stored or keep_going:
            raise click.UsageError("--as-stored and --keep-going go with --from")
        message = _one_message(topic, queue_id, tags, key, properties, flag, body, body_file)
        with _open(store, create) as opened:
            return _put_one(opened, message, output)
    if topic or key or properties or body is not None or body_file or tags or queue_id is not None or flag:
        raise click.UsageError(
            "--from takes whole messages: no -t, -q, -k, --tags, --property, --flag or --body with it"
        )
    with _rereadable(source, keep_going) as lines, _open(store, create) as opened:
        bad = 0 if keep_going else _check_all(opened, lines, as_stored, output)
        if bad:
            raise UsageError(
                f"{bad} bad lines: nothing was written", hint="mend them, or leave them out with --keep-going"
            )
        return _put_all(opened, lines, as_stored, output)


def _one_message(
    topic: str | None,
    queue_id: int | None,
    tags: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    flag: int,
    body: str | None,
    body_file: IO[bytes] | None,
) -> Message:
    from formats.message import Message
    from rmqctl.message_input import properties_of

    if not topic:
        raise click.UsageError("a message needs -t TOPIC, or --from FILE for many")
    if (body is None) == (body_file is None):
        raise click.UsageError("a message needs either --body TEXT or --body-file FILE")
    others = {}
    for text in properties:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="'--property'")
        others[name] = value
    data = body.encode("utf-8", "surrogateescape") if body is not None else body_file.read() if body_file else b""
    return Message(topic, data, queue_id or 0, flag, properties_of(tags, list(keys), others))


def _open(store: StoreLocation, create: bool) -> MessageStore:
    from rmqctl.opening import read_config
    from rmqctl.progress import progress
    from store.message_store import MessageStore

    with progress("checking the end of the commitlog", None, "bytes") as bar:
        return MessageStore.open(
            store.path, "rw", read_config(store), create=create, allocate_ahead=False, progress=bar.advance
        )


def _row(message: Message, result: PutResult) -> dict[str, Any]:
    return {
        "status": str(result.status),
        "msg_id": result.message_id,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
    }


def _put_one(opened: MessageStore, message: Message, output: Output) -> int:
    result = opened.put(message)
    _require_stored(result)
    opened.flush()
    output.record(_row(message, result))
    return exit_codes.OK


def _require_stored(result: PutResult, line: int | None = None) -> None:
    """UsageError for a message RocketMQ does not take, WriteFailedError for a store that cannot take it."""
    from store.status import PutStatus

    if result.status.is_stored:
        return
    place = f"line {line}: " if line is not None else ""
    text = f"{place}{result.status}: {result.detail}"
    if result.status in (PutStatus.DISK_FULL, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED):
        raise WriteFailedError(text, hint="what was stored before it stays; free some space, then go on with the rest")
    raise UsageError(text)


@contextlib.contextmanager
def _rereadable(source: IO[bytes], keep_going: bool) -> Iterator[IO[bytes]]:
    """`source`, or a copy of it that can be read twice: once to check everything, once to store it."""
    if keep_going or source.seekable():
        yield source
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY) as spool:
        while chunk := source.read(1 << 20):
            spool.write(chunk)
        spool.seek(0)
        yield spool


def _check_all(opened: MessageStore, lines: IO[bytes], as_stored: bool, output: Output) -> int:
    """Number of lines that cannot be stored; each is named."""
    from rmqctl.message_input import message_from_line, numbered_lines

    start = lines.tell()
    bad = 0
    for number, line in numbered_lines(lines):
        try:
            refused = opened.check_message(message_from_line(line, as_stored), as_stored=as_stored)
            if refused is not None:
                raise UsageError(f"{refused.status}: {refused.detail}")
        except UsageError as error:
            bad += 1
            _tell(output, number, error, bad)
    lines.seek(start)
    return bad


def _tell(output: Output, number: int, error: UsageError, count: int) -> None:
    if count <= _TOLD:
        output.talk(f"line {number}: {error.message}")
    elif count == _TOLD + 1:
        output.talk("further bad lines are only counted")


def _put_all(opened: MessageStore, lines: IO[bytes], as_stored: bool, output: Output) -> int:
    from rmqctl.message_input import message_from_line, numbered_lines
    from rmqctl.progress import progress

    summary: dict[str, Any] = {"stored": 0, "bad_lines": 0, "first_physical_offset": None, "end_physical_offset": None}
    pending: list[tuple[int, Message]] = []

    def store_pending() -> None:
        results = opened.put_many([message for _, message in pending], as_stored=as_stored)
        for (number, _), result in zip(pending, results, strict=True):
            _note(summary, result, number, output)
        pending.clear()

    size = _size_of(lines)
    try:
        with progress("storing", size, "bytes") as bar:
            for number, line in numbered_lines(lines):
                try:
                    pending.append((number, message_from_line(line, as_stored)))
                except UsageError as error:
                    summary["bad_lines"] += 1
                    _tell(output, number, error, summary["bad_lines"])
                if len(pending) >= _CHUNK:
                    store_pending()
                bar.advance(len(line))
            if pending:
                store_pending()
        opened.flush()
    except KeyboardInterrupt:
        output.talk(f"interrupted: {summary['stored']} messages are stored")
        raise
    summary["end_physical_offset"] = opened.files.log.max_offset
    output.record(summary)
    return exit_codes.USAGE if summary["bad_lines"] else exit_codes.OK


def _note(summary: dict[str, Any], result: PutResult, number: int, output: Output) -> None:
    try:
        _require_stored(result, number)
    except UsageError as error:
        summary["bad_lines"] += 1
        _tell(output, number, error, summary["bad_lines"])
        return
    summary["stored"] += 1
    if summary["first_physical_offset"] is None:
        summary["first_physical_offset"] = result.physical_offset


def _size_of(lines: IO[bytes]) -> int | None:
    try:
        return Path(lines.name).stat().st_size if lines is not sys.stdin.buffer else None
    except (OSError, AttributeError, TypeError):
        return None
