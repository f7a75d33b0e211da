"""Prints lists of messages: as columns where there are many, one by one else, with the same bytes."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.formats.message import StoredMessage, unread_body_error
from rmqctl.messages.json import (
    ALL_COLUMNS,
    DROPPABLE_COLUMNS,
    JSON_ORDER,
    STORED_BODY,
    TABLE_COLUMNS,
    message_json,
    message_row,
    traces_of,
)
from rmqctl.output.output import FIRST_PAGE
from rmqctl.output.table import visible
from rmqctl.store.log.walk import overflowed_at
from rmqctl.store.native import is_compiled
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.select import PLAIN_BYTES, plain_start, walked_bytes
from rmqctl.store.scan.schema import has_arrow

if TYPE_CHECKING:
    from rmqctl.messages.json_columns import JsonLines
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.read.select import Selection

# so much is printed before what prints the rest is loaded: nobody waits for the first messages of a large log
_FIRST_BYTES = 256 * 1024
_THREADS = 2
# so few messages are decoded one by one sooner than a piece of the log is read
_FEW = 200


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

    def row_told(self, message: StoredMessage, events: Events) -> dict[str, Any]:
        """The same; a body that is shown and does not unpack is reported."""
        if self.columns is None or any(name.startswith("body") for name in self.columns):
            error = unread_body_error(message) if message.sys_flag & SYS_FLAG_COMPRESSED else None
            if error is not None:
                events.damaged(error)
        return self.row(message)

    def line_names(self) -> Sequence[str]:
        """The fields of a line of JSON or CSV."""
        if self.columns is not None:
            return self.columns
        if not self.output.is_json:
            return ALL_COLUMNS
        return [name for name in JSON_ORDER if self.stored_bodies or name != STORED_BODY]


def print_messages(listing: Listing, messages: Iterator[StoredMessage], events: Events = UNHEARD) -> int:
    """Print messages one by one; how many there were. Bodies that do not unpack are reported."""
    return listing.output.rows(
        listing.table_columns,
        (listing.row_told(message, events) for message in messages),
        all_columns=listing.all_columns,
        droppable=listing.droppable,
    )


def print_batches(listing: Listing, batches: Iterator[list[StoredMessage]], events: Events = UNHEARD) -> int:
    """Print messages in parts as they come, each at once; how many there were."""
    return listing.output.batches(
        listing.table_columns,
        ([listing.row_told(message, events) for message in batch] for batch in batches),
        all_columns=listing.all_columns,
        droppable=listing.droppable,
    )


def print_formatted(
    output: Output, template: FormatString, batches: Iterator[list[StoredMessage]], events: Events
) -> int:
    """Print messages by a template, part by part; how many there were."""
    count = 0
    for batch in batches:
        for message in batch:
            output.raw(template.filled(message, events, for_terminal=output.is_terminal))
        output.flush()
        count += len(batch)
    return count


def in_batches(messages: Iterable[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """Messages in lists of a page each."""
    rest = iter(messages)
    while batch := list(itertools.islice(rest, FIRST_PAGE)):
        yield batch


def print_log(listing: Listing, store: MessageStore, selection: Selection, limit: int | None, events: Events) -> int:
    """Print the first `limit` messages of a selection (None: all) in order of the log; how many there were.

    JSON is made from columns where that is compiled, CSV of many where there is pyarrow. Damage is reported in its
    place and skipped.
    """
    log = store.files.log
    # traces are decoded message by message
    is_plain = listing.output.format == "table" or listing.trace_topic is not None
    if listing.output.is_json and not is_plain and is_compiled() and (limit is None or limit > _FEW):
        return _print_json(listing, store, selection, limit, events)
    is_many = not is_plain and not listing.output.is_json and walked_bytes(log, selection) > PLAIN_BYTES
    by_columns = is_many and has_arrow()
    left: list[Selection | None] = []

    def messages() -> Iterator[StoredMessage]:
        if by_columns:
            left.append((yield from plain_start(log, selection, _FIRST_BYTES, events)))
        else:
            chosen = selection.criteria, selection.begin, selection.end
            yield from store.messages(*chosen, events=events)

    count = print_messages(listing, itertools.islice(messages(), limit), events)
    for rest in left:
        if rest is not None:
            still = None if limit is None else limit - count
            count += _print_columns(listing, store, rest, still, events)
    return count


def _print_json(listing: Listing, store: MessageStore, selection: Selection, limit: int | None, events: Events) -> int:
    from rmqctl.messages.json_columns import JsonColumns
    from rmqctl.store.scan.chosen import scan_made

    log, count = store.files.log, 0

    def damaged(error: CorruptError) -> None:
        """Report damage, and print the message in it if only the sign of a length hides it from a broker."""
        nonlocal count
        events.damaged(error)
        found = None if error.physical_offset is None else overflowed_at(log, error.physical_offset)
        message = None if found is None or count == limit else found[0]
        if message and message.physical_offset >= selection.begin and selection.criteria.matches(message):
            count += print_messages(listing, iter((message,)), events)

    maker = JsonColumns(listing.line_names())
    scanned = scan_made(log, selection, maker.needs, maker, events._replace(damage=damaged))
    with contextlib.closing(scanned) as found:
        for lines in found:
            count += _print_lines(listing, lines, None if limit is None else limit - count, events)
            if count == limit:
                break
    return count


def _print_lines(listing: Listing, lines: JsonLines, limit: int | None, events: Events) -> int:
    """Print lines, `limit` of them at most; how many these are."""
    lines = lines if limit is None else lines.first(limit)
    listing.output.lines(lines.text)
    for _, error in lines.damage:
        events.damaged(error)
    return lines.rows


def print_queues(listing: Listing, store: MessageStore, selection: Selection, limit: int | None, events: Events) -> int:
    """Print the first `limit` messages of a selection (None: all) in order of the queues; how many there were. JSON is
    made from columns as by `print_log`."""
    is_few = limit is not None and limit <= _FEW
    if not listing.output.is_json or listing.trace_topic is not None or not is_compiled() or is_few:
        found = store.messages(selection.criteria, selection.begin, selection.end, order="queue", events=events)
        return print_messages(listing, itertools.islice(found, limit), events)
    from rmqctl.messages.json_columns import JsonColumns, JsonLines
    from rmqctl.store.log.columns import MessageColumns

    maker, count = JsonColumns(listing.line_names()), 0

    def pieces() -> Iterator[JsonLines | StoredMessage]:
        for part in store.reader.telling(events).columns_in_queue_order(selection, maker.needs):
            if isinstance(part, MessageColumns):
                yield from maker.batches(part)
            else:
                yield part

    for one in pieces():
        if isinstance(one, JsonLines):
            count += _print_lines(listing, one, None if limit is None else limit - count, events)
        else:
            count += print_messages(listing, iter((one,)), events)
        if count == limit:
            break
    return count


def _print_columns(
    listing: Listing, store: MessageStore, selection: Selection, limit: int | None, events: Events
) -> int:
    from rmqctl.messages.text import MessageLines
    from rmqctl.store.scan.batches import bodies_not_unpacked

    output = listing.output
    lines = MessageLines(listing.line_names())
    count = 0
    # in order of the log: damage, and lines that are being made
    waiting: deque[CorruptError | Future[memoryview]] = deque()
    criteria, begin, end = selection.criteria, selection.begin, selection.end
    heard = events._replace(damage=waiting.append)
    scanned = store.scan(lines.needs, begin, end, criteria=criteria, views=False, events=heard)

    def print_next() -> None:
        one = waiting.popleft()
        if isinstance(one, Future):
            output.lines(one.result())
        else:
            events.damaged(one)

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


# Messages by a template, in kcat's manner: `%t` and the like are filled in, all else is printed as it stands.

Unpacked = Callable[[StoredMessage], bytes]
_Field = Callable[[StoredMessage, Unpacked], bytes]


def _number(value: int) -> bytes:
    return str(value).encode()


def _property(message: StoredMessage, name: str) -> bytes:
    return message.properties().get(name, "").encode("utf-8", "surrogateescape")


def _key_length(message: StoredMessage, _: Unpacked) -> bytes:
    return _number(len(_property(message, names.KEYS)) if names.KEYS in message.properties() else -1)


def _headers(message: StoredMessage, _: Unpacked) -> bytes:
    pairs = (f"{name}={value}" for name, value in message.properties().items())
    return ",".join(pairs).encode("utf-8", "surrogateescape")


_TOKENS: dict[str, tuple[str, _Field]] = {
    "t": ("topic", lambda message, _: message.topic.encode("utf-8", "surrogateescape")),
    "q": ("queue", lambda message, _: _number(message.queue_id)),
    "p": ("the same: kcat's partition", lambda message, _: _number(message.queue_id)),
    "o": ("queue offset", lambda message, _: _number(message.queue_offset)),
    "O": ("physical offset", lambda message, _: _number(message.physical_offset)),
    "i": ("message id", lambda message, _: message.message_id.encode()),
    "u": ("unique key", lambda message, _: _property(message, names.UNIQUE_KEY)),
    "k": ("keys", lambda message, _: _property(message, names.KEYS)),
    "K": ("bytes of the keys, -1 without", _key_length),
    "g": ("tag", lambda message, _: _property(message, names.TAGS)),
    "h": ("properties NAME=VALUE,…", _headers),
    "s": ("body, unpacked", lambda message, body: body(message)),
    "S": ("its bytes", lambda message, body: _number(len(body(message)))),
    "R": ("the same as 4 bytes, big-endian", lambda message, body: len(body(message)).to_bytes(4, "big")),
    "T": ("store time in ms", lambda message, _: _number(message.store_timestamp)),
    "B": ("born time in ms", lambda message, _: _number(message.born_timestamp)),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(?P<token>.?)|\\x(?P<hex>[0-9a-fA-F]{1,2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)

TOKENS_HELP = ", ".join(f"%{token} {meaning}" for token, (meaning, _) in _TOKENS.items())
"""Meaning of each token."""


class FormatString:
    """A template, understood. Nothing is put behind a message but what the template says."""

    def __init__(self, template: str) -> None:
        """UsageError for a token or an escape that there is not."""
        self._parts: list[bytes | _Field] = [_part(found, template) for found in _PART.finditer(template)]

    def filled(self, message: StoredMessage, events: Events, *, for_terminal: bool = False) -> bytes:
        """The bytes for one message: as they are stored, or `for_terminal` with what a terminal would obey as escapes.

        A body that cannot be unpacked is reported and given as it is stored.
        """
        known: list[bytes] = []

        def body(message: StoredMessage) -> bytes:
            if not known:
                known.append(_unpacked(message, events))
            return known[0]

        return b"".join(
            part if isinstance(part, bytes) else _shown(part(message, body), for_terminal) for part in self._parts
        )


def _shown(value: bytes, for_terminal: bool) -> bytes:
    return visible(value.decode("utf-8", "backslashreplace")).encode() if for_terminal else value


def _unpacked(message: StoredMessage, events: Events) -> bytes:
    try:
        return message.plain_body()
    except (CorruptError, UnsupportedError) as error:
        events.damaged(
            CorruptError(
                f"the body cannot be unpacked, and is given as it is stored: {error.message}",
                physical_offset=message.physical_offset,
            )
        )
        return message.body


def _part(found: re.Match[str], template: str) -> bytes | _Field:
    if found["text"] is not None:
        return found["text"].encode("utf-8", "surrogateescape")
    if found["hex"] is not None:
        return bytes((int(found["hex"], 16),))
    if found["token"] == "%":
        return b"%"
    if found["token"] in _TOKENS:
        return _TOKENS[found["token"]][1]
    if found["escape"] in _ESCAPES:
        return _ESCAPES[found["escape"]]
    raise UsageError(
        f"{found[0]!r} in the format {template!r} means nothing",
        hint=f"there are {TOKENS_HELP}, %% for %; \\n, \\r, \\t, \\0, \\\\ and \\xNN",
    )
