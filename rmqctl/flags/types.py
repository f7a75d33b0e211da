"""What the values of flags may be: times, places of queues, texts, files."""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.formats.errors import RefusedError, UnreadableError, UsageError
from rmqctl.output.times import parse_span, parse_time, parse_zone

if TYPE_CHECKING:
    from rmqctl.formats.errors import RefusedError
    from rmqctl.store.offsets.change import ResetTo
    from rmqctl.store.store_files import StoreFiles

    _TimeParameter = click.ParamType[int]
    _TextParameter = click.ParamType[str]
    _PlaceParameter = click.ParamType[ResetTo]
    _AddressParameter = click.ParamType[tuple[str, int]]
else:
    _TimeParameter = _TextParameter = _PlaceParameter = _AddressParameter = (
        click.ParamType
    )  # older releases of click cannot be subscripted

# in ms of 2001; no queue holds so many messages
_SMALLEST_TIME = 10**12
_ZONE = "rmqctl.zone"


def _parsed_time(value: str, ctx: click.Context | None) -> int:
    zone = None if ctx is None else ctx.meta.get(_ZONE)
    return parse_time(value) if zone is None else parse_time(value, zone=zone)


class InputFile(click.File):
    """A file that is read as bytes, or `-` for standard input. A closed one is an error: its bytes are not known."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The open file. UnreadableError where standard input is closed."""
        if value == "-" and sys.stdin is None:
            raise UnreadableError("standard input is closed", hint="name a file, or redirect standard input")
        return super().convert(value, param, ctx)


class TimeType(_TimeParameter):
    """A point in time, as rmqctl.times understands it, as milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds; a usage error that names the option if `value` is no time."""
        if isinstance(value, int):
            return value
        try:
            return _parsed_time(value, ctx)
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


class TextType(_TextParameter):
    """Text to store or to search for: UTF-8, in any locale of the command line."""

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


def keep_zone(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Before any time is looked at: the option is eager."""
    if value is not None:
        try:
            ctx.meta[_ZONE] = parse_zone(value)
        except UsageError as error:
            raise click.BadParameter(f"{error.message}: {error.hint}", ctx, param) from error


class ResetPlace(_PlaceParameter):
    """Where a group is set to: a time, an offset, or one of the ends."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ResetTo:
        """Digits are an offset, as far as they are not a time in ms after 2001."""
        from rmqctl.store.offsets.change import ResetTo

        if isinstance(value, ResetTo):
            return value
        text = str(value).strip().lower()
        if text == "earliest":
            return ResetTo("earliest")
        if text == "latest":
            return ResetTo("latest")
        if text.isascii() and text.isdigit() and int(text[:20]) < _SMALLEST_TIME:
            return ResetTo("offset", int(text))
        try:
            return ResetTo("time", _parsed_time(value, ctx))
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}, or an offset, earliest, latest", param, ctx)


TIME = TimeType()
PLACE = ResetPlace()
PEM = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


class Seconds(click.FloatRange):
    """A number of seconds, or a span with its unit (5s, 2m); neither inf nor nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; a usage error that names the option for any other value."""
        text = str(value).strip()
        if text[:1].isdigit() and text[-1:].isalpha():
            return SPAN.convert(text, param, ctx) / 1000
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return seconds


SECONDS = Seconds(min=0)
LARGEST_INT, LARGEST_LONG = (1 << 31) - 1, (1 << 63) - 1


class WholeNumber(click.IntRange):
    """A number from `smallest` on that a field of RocketMQ can hold. Help names the smallest only, as click has it."""

    def __init__(self, smallest: int, largest: int) -> None:
        super().__init__(min=smallest)
        self.largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error that names the option for any other value."""
        number = int(super().convert(value, param, ctx))
        if number > self.largest:
            self.fail(f"{number} is more than {self.largest}", param, ctx)
        return number


class SignedNumber(click.types.IntParamType):
    """A number from -`largest` to `largest`, which help does not name."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error that names the option for any other value."""
        number = int(super().convert(value, param, ctx))
        if abs(number) > self.largest:
            self.fail(f"{number} is not in the range -{self.largest}<=x<={self.largest}", param, ctx)
        return number


QUEUE_ID = WholeNumber(0, LARGEST_INT)
OFFSET = WholeNumber(0, LARGEST_LONG)
COUNT = WholeNumber(1, LARGEST_LONG)
COUNT_FROM_AN_END = SignedNumber(LARGEST_LONG)
DELAY_LEVEL = WholeNumber(1, LARGEST_INT)
JAVA_INT = click.IntRange(-LARGEST_INT - 1, LARGEST_INT)


# How large new queue and index files are to be where neither a file nor a configuration says it: the one place that
# decides or tells, before a verb makes any.

_FIRST_MESSAGES = 1000


@dataclass(frozen=True)
class NewFiles:
    """Which files a verb may make. `is_asked_for`: the index by name, even where keys are in a RocksDB alone."""

    queues: bool = True
    index: bool = True
    is_asked_for: bool = False


_ALL = NewFiles()


def decide_sizes(
    files: StoreFiles, queue_file_size: int | None, index_size: tuple[int, int] | None = None, makes: NewFiles = _ALL
) -> bool:
    """Take the sizes of new files that were given, or say which are assumed, where a verb `makes` any.

    Returns whether the size of index files is assumed: `tell_index_size` says so where some were made.
    RefusedError where the commitlog shows that this broker has sizes of its own: with queue files of another length
    than its mappedFileSizeConsumeQueue it does not start (MappedFileQueue#doLoad), and in index files of other sizes it
    finds nothing.
    """
    from rmqctl.store.journal.journal import keep_interrupted_sizes
    from rmqctl.store.queues.queue_table import has_rocksdb_queues

    if index_size is not None:
        _take_index(files, index_size)
    has_queue_files = files.queues.of_files or not (has_rocksdb_queues(files.layout) or files.leaves_queues)
    if queue_file_size is not None and has_queue_files:
        _take(files, queue_file_size)
    keep_interrupted_sizes(files)
    if files.log.last_with_data() is None:
        return False
    if makes.queues and has_queue_files and files.queues.is_size_assumed:
        _tell_queues(files)
    if not files.index_to_mend.is_geometry_assumed:
        return False
    if makes.index and (makes.is_asked_for or files.makes_index_files) and _has_own_sizes(files) and _has_keys(files):
        raise _unknown_index_size(files)
    return True


def _take_index(files: StoreFiles, index_size: tuple[int, int]) -> None:
    for name, size, key in zip(
        ("max_hash_slot_num", "max_index_num"), index_size, ("maxHashSlotNum", "maxIndexNum"), strict=True
    ):
        if getattr(files.config, name) not in (None, size):
            raise UsageError(f"--index-size and {key} of -c differ", hint="leave out one of them")
        files.take_sizes({name: size})


def _has_own_sizes(files: StoreFiles) -> bool:
    """Return whether the commitlog shows that the broker does not use RocketMQ's default sizes."""
    from rmqctl.store.write.opening import DEFAULT_COMMITLOG_FILE_SIZE

    return files.log.file_size != DEFAULT_COMMITLOG_FILE_SIZE


def _has_keys(files: StoreFiles) -> bool:
    """Return whether one of the first messages has a key: an index would be made of it."""
    from rmqctl.formats.message import StoredMessage
    from rmqctl.store.log.walk import walk
    from rmqctl.store.queues.dispatch import index_keys

    messages = (one for one in walk(files.log) if isinstance(one, StoredMessage))
    return any(index_keys(message) for message in islice(messages, _FIRST_MESSAGES))


def _unknown_index_size(files: StoreFiles) -> RefusedError:
    return RefusedError(
        "no index file is left that shows how many slots and entries they have, and this broker does not use the "
        f"default sizes: its commitlog files have {files.log.file_size} bytes",
        file=files.layout.index,
        hint="name its broker.conf with -c, or the sizes: `--index-size SLOTS,ENTRIES` (maxHashSlotNum, maxIndexNum), "
        "`--index-size default` if they are RocketMQ's own; messageIndexEnable=false in -c makes no index",
    )


def _take(files: StoreFiles, queue_file_size: int) -> None:
    if files.config.mapped_file_size_consume_queue not in (None, queue_file_size):
        raise UsageError("--queue-file-size and mappedFileSizeConsumeQueue of -c differ", hint="leave out one of them")
    files.take_sizes({"mapped_file_size_consume_queue": queue_file_size})


def _tell_queues(files: StoreFiles) -> None:
    from rmqctl.output.output import talk
    from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE

    if _has_own_sizes(files):
        raise RefusedError(
            "no consume queue file is left that shows how large they are, and this broker does not use the default "
            f"sizes: its commitlog files have {files.log.file_size} bytes",
            file=files.layout.consumequeue,
            hint="name its broker.conf with -c, or the size: `--queue-file-size BYTES` (mappedFileSizeConsumeQueue), "
            "`--queue-file-size default` if it is RocketMQ's own",
        )
    talk(
        f"no consume queue file is left that shows how large they are: {DEFAULT_FILE_SIZE} bytes are assumed, "
        "RocketMQ's default; -c broker.conf (mappedFileSizeConsumeQueue) or --queue-file-size says it otherwise"
    )


def tell_index_size(is_assumed: bool, made: int, *, dry_run: bool) -> None:
    """Report the size of index files that were, or would be, `made` with a default size."""
    from rmqctl.output.output import talk
    from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS

    if is_assumed and made:
        talk(
            f"no index file was left that shows how large they are: the new ones {'would have' if dry_run else 'have'} "
            f"{DEFAULT_SLOTS} slots and {DEFAULT_ENTRIES} entries, RocketMQ's default; -c broker.conf (maxHashSlotNum, "
            "maxIndexNum) says it otherwise"
        )


if TYPE_CHECKING:
    _NumberParameter = click.ParamType[int]
    _NumbersParameter = click.ParamType[tuple[int, int]]
else:
    _NumberParameter = _NumbersParameter = click.ParamType  # older releases of click cannot be subscripted


class SpanType(_NumberParameter):
    """A length of time, in milliseconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds; a usage error that names the option if `value` is no length of time."""
        if isinstance(value, int):
            return value
        try:
            return parse_span(value)
        except UsageError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


SPAN = SpanType()


class QueueFileSize(_NumberParameter):
    """Bytes of a consume queue file, or `default` for RocketMQ's own."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """What was written as a number of bytes, at least one unit."""
        from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE, UNIT_SIZE

        if value == "default":
            return DEFAULT_FILE_SIZE
        size = click.IntRange(UNIT_SIZE, 0x7FFFFFFF).convert(value, param, ctx)
        return -(-int(size) // UNIT_SIZE) * UNIT_SIZE


QUEUE_FILE_SIZE = QueueFileSize()


class IndexSize(_NumbersParameter):
    """Slots and entries of an index file, or `default` for RocketMQ's own."""

    name = "sizes"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Return both numbers of `SLOTS,ENTRIES`."""
        from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, LARGEST_FILE, Geometry

        if value == "default":
            return DEFAULT_SLOTS, DEFAULT_ENTRIES
        parts: list[Any] = str(value).split(",")
        if len(parts) != 2:
            self.fail(f"{value!r} is not SLOTS,ENTRIES, such as {DEFAULT_SLOTS},{DEFAULT_ENTRIES}", param, ctx)
        slots, entries = (
            int(click.IntRange(least, LARGEST_FILE).convert(one, param, ctx))
            for one, least in zip(parts, (1, 2), strict=True)
        )
        if Geometry(slots, entries).file_size > LARGEST_FILE:
            self.fail(f"an index file of this size would have more than {LARGEST_FILE} bytes", param, ctx)
        return slots, entries


INDEX_SIZE = IndexSize()


_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_LARGEST_PORT = 65535


class AddressType(_AddressParameter):
    """HOST:PORT, an IPv6 address in brackets."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Host and port; a usage error that names the option if `value` is no address."""
        if isinstance(value, tuple):
            return value
        match = _HOST_AND_PORT.fullmatch(value)
        if match is None or int(match[2]) > _LARGEST_PORT:
            self.fail(f"{value!r} is no address: write it as 127.0.0.1:10911, with port 0 for any free one", param, ctx)
        return match[1].strip("[]"), int(match[2])


ADDRESS = AddressType()
