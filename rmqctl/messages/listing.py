"""Prints lists of messages: as columns where there are many, one by one else, with the same bytes."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rmqctl.messages.message_json import (
    ALL_COLUMNS,
    DROPPABLE_COLUMNS,
    JSON_ORDER,
    STORED_BODY,
    TABLE_COLUMNS,
    message_json,
    message_row,
)
from rmqctl.store.read.selection import PLAIN_BYTES, plain_start, walked_bytes
from rmqctl.store.scan.schema import has_arrow

if TYPE_CHECKING:
    from rmqctl.formats.errors import CorruptError
    from rmqctl.formats.message import StoredMessage
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.read.selection import OnDamage, Selection

# so much is printed before what prints the rest is loaded: nobody waits for the first messages of a large log
_FIRST_BYTES = 256 * 1024
_THREADS = 2


def print_messages(output: Output, messages: Iterator[StoredMessage], stored_bodies: bool) -> int:
    """Print messages one by one; how many there were."""
    rows: Iterator[dict[str, Any]]
    if output.format == "table":
        rows = map(message_row, messages)
    else:
        rows = (message_json(message, stored_body=stored_bodies) for message in messages)
    return output.rows(TABLE_COLUMNS, rows, all_columns=ALL_COLUMNS, droppable=DROPPABLE_COLUMNS)


def print_log(
    output: Output,
    store: MessageStore,
    selection: Selection,
    limit: int | None,
    stored_bodies: bool,
    on_damage: OnDamage,
) -> int:
    """Print the first `limit` messages of a selection (None: all) in order of the log; how many there were.

    JSON and CSV of many are made as columns where there is pyarrow. Damage is told in its place and passed.
    """
    log = store.files.log
    by_columns = output.format != "table" and walked_bytes(log, selection) > PLAIN_BYTES and has_arrow()
    left: list[Selection | None] = []

    def messages() -> Iterator[StoredMessage]:
        if by_columns:
            left.append((yield from plain_start(log, selection, _FIRST_BYTES, on_damage)))
        else:
            yield from store.messages(selection.criteria, selection.begin, selection.end, on_damage=on_damage)

    count = print_messages(output, itertools.islice(messages(), limit), stored_bodies)
    for rest in left:
        if rest is not None:
            still = None if limit is None else limit - count
            count += _print_columns(output, store, rest, still, stored_bodies, on_damage)
    return count


def _print_columns(
    output: Output,
    store: MessageStore,
    selection: Selection,
    limit: int | None,
    stored_bodies: bool,
    on_damage: OnDamage,
) -> int:
    from rmqctl.messages.message_lines import MessageLines

    if not output.is_json:
        names: Sequence[str] = ALL_COLUMNS
    else:
        names = [name for name in JSON_ORDER if stored_bodies or name != STORED_BODY]
    lines = MessageLines(names, is_json=output.is_json)
    count = 0
    # in order of the log: damage, and lines that are being made
    waiting: deque[CorruptError | Future[memoryview]] = deque()
    criteria, begin, end = selection.criteria, selection.begin, selection.end
    scanned = store.scan(lines.needs, begin, end, criteria=criteria, views=False, on_damage=waiting.append)

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
            while len(waiting) > _THREADS:
                print_next()
            if count == limit:
                break
        while waiting:
            print_next()
    return count
