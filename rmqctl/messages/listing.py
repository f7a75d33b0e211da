"""Prints lists of messages: as columns where there are many, one by one else, with the same bytes."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import unread_body_error
from rmqctl.messages.message_json import (
    ALL_COLUMNS,
    DROPPABLE_COLUMNS,
    JSON_ORDER,
    STORED_BODY,
    TABLE_COLUMNS,
    message_json,
    message_row,
)
from rmqctl.messages.traces import traces_of
from rmqctl.output.output import FIRST_PAGE
from rmqctl.store.read.selection import PLAIN_BYTES, plain_start, walked_bytes
from rmqctl.store.scan.schema import has_arrow

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.messages.format_string import FormatString
    from rmqctl.output.output import Output
    from rmqctl.store.commitlog.walk import Progress
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.read.selection import OnDamage, Selection

# so much is printed before what prints the rest is loaded: nobody waits for the first messages of a large log
_FIRST_BYTES = 256 * 1024
_THREADS = 2


class Listing:
    """How messages are listed: with `columns`, None for those that are usual, and in JSON with `stored_bodies`.

    `trace_topic`: the topic whose messages are trace records, which become a field of JSON; None for no such field.
    """

    def __init__(
        self,
        output: Output,
        columns: Sequence[str] | None = None,
        *,
        stored_bodies: bool = False,
        trace_topic: str | None = None,
    ) -> None:
        self.output = output
        self.columns = columns
        self.stored_bodies = stored_bodies or (columns is not None and STORED_BODY in columns)
        self.table_columns = TABLE_COLUMNS if columns is None else tuple(columns)
        self.all_columns = ALL_COLUMNS if columns is None else tuple(columns)
        self.trace_topic = trace_topic
        self.droppable = DROPPABLE_COLUMNS if columns is None else ()

    def row(self, message: StoredMessage) -> dict[str, Any]:
        """A message as what is printed of it."""
        is_table, is_trace = self.output.format == "table", message.topic == self.trace_topic
        if is_table and self.columns is None:
            return message_row(message, is_trace=is_trace)
        record = message_json(message, stored_body=self.stored_bodies)
        traces = traces_of(message.plain_body()) if is_trace and not is_table and "body_error" not in record else {}
        if self.columns is None:
            return record | traces
        if is_table:
            record |= message_row(message, is_trace=is_trace)
        return {name: record[name] for name in self.columns if name in record} | traces

    def row_told(self, message: StoredMessage, on_damage: OnDamage) -> dict[str, Any]:
        """The same; a body that is shown and does not unpack goes to `on_damage`."""
        if self.columns is None or any(name.startswith("body") for name in self.columns):
            error = unread_body_error(message) if message.sys_flag & SYS_FLAG_COMPRESSED else None
            if error is not None:
                on_damage(error)
        return self.row(message)

    def line_names(self) -> Sequence[str]:
        """The fields of a line of JSON or CSV."""
        if self.columns is not None:
            return self.columns
        if not self.output.is_json:
            return ALL_COLUMNS
        return [name for name in JSON_ORDER if self.stored_bodies or name != STORED_BODY]


def _ignore(_: CorruptError) -> None:
    """Report nothing."""


def print_messages(listing: Listing, messages: Iterator[StoredMessage], on_damage: OnDamage = _ignore) -> int:
    """Print messages one by one; how many there were. Bodies that do not unpack go to `on_damage`."""
    return listing.output.rows(
        listing.table_columns,
        (listing.row_told(message, on_damage) for message in messages),
        all_columns=listing.all_columns,
        droppable=listing.droppable,
    )


def print_batches(listing: Listing, batches: Iterator[list[StoredMessage]], on_damage: OnDamage = _ignore) -> int:
    """Print messages in parts as they come, each at once; how many there were."""
    return listing.output.batches(
        listing.table_columns,
        ([listing.row_told(message, on_damage) for message in batch] for batch in batches),
        all_columns=listing.all_columns,
        droppable=listing.droppable,
    )


def print_formatted(
    output: Output, template: FormatString, batches: Iterator[list[StoredMessage]], on_damage: OnDamage
) -> int:
    """Print messages by a template, part by part; how many there were."""
    count = 0
    for batch in batches:
        for message in batch:
            output.raw(template.filled(message, on_damage, for_terminal=output.is_terminal))
        output.flush()
        count += len(batch)
    return count


def in_batches(messages: Iterable[StoredMessage], size: int = FIRST_PAGE) -> Iterator[list[StoredMessage]]:
    """Messages in lists of this size."""
    rest = iter(messages)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def print_log(
    listing: Listing,
    store: MessageStore,
    selection: Selection,
    limit: int | None,
    on_damage: OnDamage,
    progress: Progress | None = None,
) -> int:
    """Print the first `limit` messages of a selection (None: all) in order of the log; how many there were.

    JSON and CSV of many are made as columns where there is pyarrow. Damage is told in its place and passed.
    """
    log = store.files.log
    # traces are decoded message by message
    is_plain = listing.output.format == "table" or listing.trace_topic is not None
    by_columns = not is_plain and walked_bytes(log, selection) > PLAIN_BYTES and has_arrow()
    left: list[Selection | None] = []

    def messages() -> Iterator[StoredMessage]:
        if by_columns:
            left.append((yield from plain_start(log, selection, _FIRST_BYTES, on_damage, progress)))
        else:
            chosen = selection.criteria, selection.begin, selection.end
            yield from store.messages(*chosen, on_damage=on_damage, progress=progress)

    count = print_messages(listing, itertools.islice(messages(), limit), on_damage)
    for rest in left:
        if rest is not None:
            still = None if limit is None else limit - count
            count += _print_columns(listing, store, rest, still, on_damage, progress)
    return count


def _print_columns(
    listing: Listing,
    store: MessageStore,
    selection: Selection,
    limit: int | None,
    on_damage: OnDamage,
    progress: Progress | None,
) -> int:
    from rmqctl.messages.message_lines import MessageLines
    from rmqctl.store.scan.bodies import bodies_not_unpacked

    output = listing.output
    lines = MessageLines(listing.line_names(), is_json=output.is_json)
    count = 0
    # in order of the log: damage, and lines that are being made
    waiting: deque[CorruptError | Future[memoryview]] = deque()
    criteria, begin, end = selection.criteria, selection.begin, selection.end
    scanned = store.scan(
        lines.needs, begin, end, criteria=criteria, views=False, on_damage=waiting.append, progress=progress
    )

    def print_next() -> None:
        one = waiting.popleft()
        if isinstance(one, Future):
            output.lines(one.result())
        else:
            on_damage(one)

    with ThreadPoolExecutor(_THREADS, "lines") as pool, contextlib.closing(scanned) as batches:
        for batch in batches:
            part = batch if limit is None else batch.slice(0, limit - count)
            count += part.num_rows
            waiting.append(pool.submit(lines.lines, part))
            waiting.extend(bodies_not_unpacked(part))
            while len(waiting) > _THREADS:
                print_next()
            if count == limit:
                break
        while waiting:
            print_next()
    return count
