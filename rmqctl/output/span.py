"""A length of time, and the sizes of queue and index files, as a command line's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rmqctl.formats.errors import UsageError
from rmqctl.output.times import parse_span

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
