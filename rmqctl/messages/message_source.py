"""Input of `append --from`: JSON Lines, or a Parquet or Arrow file, recognised by the first bytes."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rmqctl.formats.errors import UsageError
from rmqctl.messages.input import ARROW_MAGIC, PARQUET_MAGIC, MessagePiece, identified
from rmqctl.messages.json import JSON_ORDER

_SPOOL_IN_MEMORY = 64 * 1024 * 1024
# more than the longest line of names has, and than any magic number
_LOOKED_AT = 1024


class MessageSource:
    """Messages in pieces, as often as asked for if the stream can go back to where it began.

    `item`: what a message is called when something is wrong with it, `line` or `row`. `size`: bytes in all, None if
    that is not known beforehand.
    """

    def __init__(self, stream: IO[bytes], is_table: bool, unique_keys: bool) -> None:
        """`unique_keys`: what describes a new message gets a unique id."""
        self._stream = stream
        self._is_table = is_table
        self._unique_keys = unique_keys
        self._start = stream.tell() if stream.seekable() else None
        self.item = "row" if is_table else "line"
        self.size = None if is_table else _size_of(stream)

    def pieces(self, as_stored: bool) -> Iterator[MessagePiece]:
        """The pieces from the start on. UsageError for what cannot be read on.

        With `as_stored` store time and host are needed too.
        """
        if self._start is not None:
            self._stream.seek(self._start)
        if self._is_table:
            from rmqctl.messages.message_rows import pieces_of_table

            pieces = pieces_of_table(self._stream, as_stored)
        else:
            from rmqctl.messages.line_pieces import pieces_of_lines

            pieces = pieces_of_lines(self._stream, as_stored, self._unique_keys)
        if not self._unique_keys:
            return pieces
        from rmqctl.network.unique_ids import UniqueIds

        return identified(pieces, UniqueIds())


@contextlib.contextmanager
def message_source(stream: IO[bytes], once: bool, unique_keys: bool) -> Iterator[MessageSource]:
    """The messages of `stream`. Unless it is read only `once`, a stream that cannot go back is copied first.

    UsageError for CSV.
    """
    beginning = _beginning(stream)
    if _is_csv(beginning, stream):
        raise UsageError(
            "it is CSV, which is not read: whether a field is a text, null or a list is not to be seen in it",
            hint="--from takes JSON Lines, Parquet and Arrow, and `rmqctl export` writes each of them",
        )
    is_table = beginning.startswith((PARQUET_MAGIC, ARROW_MAGIC))
    if stream.seekable() or (once and not is_table):
        yield MessageSource(stream, is_table, unique_keys)
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY) as spool:
        while chunk := stream.read(1 << 20):
            spool.write(chunk)
        spool.seek(0)
        yield MessageSource(spool, is_table, unique_keys)


def _beginning(stream: IO[bytes]) -> bytes:
    """What a stream begins with, as far as it can be looked at and still be read."""
    if stream.seekable():
        start = stream.tell()
        beginning = stream.read(_LOOKED_AT)
        stream.seek(start)
        return beginning
    return bytes(stream.peek(_LOOKED_AT)) if hasattr(stream, "peek") else b""


def _is_csv(beginning: bytes, stream: IO[bytes]) -> bool:
    """Whether the first line names fields of a message, topic or body among them, separated by commas; or the file's
    name says so and no JSON object begins there."""
    if str(getattr(stream, "name", "")).lower().endswith(".csv") and not beginning.lstrip().startswith(b"{"):
        return True
    names = beginning.partition(b"\n")[0].decode("ascii", "replace").removeprefix("\ufeff").strip().split(",")
    known = {name.strip().strip('"') for name in names} & set(JSON_ORDER)
    return len(known) == len(names) and not known.isdisjoint(("topic", "body", "body_base64"))


def _size_of(stream: IO[bytes]) -> int | None:
    try:
        return Path(stream.name).stat().st_size if stream is not sys.stdin.buffer else None
    except (OSError, AttributeError, TypeError):
        return None
