"""Pieces of messages to be stored, from lines of JSON: as rows for a bulk append where these are compiled, else line by
line."""

from __future__ import annotations

import functools
import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

import numpy as np

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.messages.input import MessagePiece, message_from_line
from rmqctl.store.log.columns import Bytes
from rmqctl.store.native import is_compiled

MAXIMUM_LINE = 64 * 1024 * 1024
# what is read at a time, first and at most, and is a block if there are whole lines in it; or so many lines
_FIRST_BYTES = 512 * 1024
_BLOCK_BYTES = 8 * 1024 * 1024
_BLOCK_LINES = 2048
# a piece of messages has at most so many
_PIECE_LINES = 2048
# so much is read line by line before that for columns is loaded: few lines need not wait for it
_PLAIN_BYTES = 64 * 1024
_THREADS = 2
_LINE_END = ord("\n")
_SEARCHED = 1 << 16


def pieces_of_lines(stream: IO[bytes], as_stored: bool, needs_ids: bool = False) -> Iterator[MessagePiece]:
    """The messages of all lines that are not blank, in pieces. UsageError for a line of more than 64 MiB. With
    `needs_ids` new ones have space for unique ids."""
    passed = 0
    # what is behind in a pipe may still have to be written: nothing there is read ahead
    ahead = _THREADS if stream.seekable() else 0
    running: deque[Future[MessagePiece]] = deque()
    with ThreadPoolExecutor(_THREADS, "lines") as pool:
        for number, text in blocks_of_lines(stream):
            passed += len(text)
            if passed <= _PLAIN_BYTES or not is_compiled():
                yield from _plain_pieces(number, text, as_stored)
                continue
            running.append(pool.submit(_piece, number, text, as_stored, needs_ids))
            while len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def blocks_of_lines(stream: IO[bytes]) -> Iterator[tuple[int, memoryview]]:
    """Whole lines, some MiB of them or what a pipe holds, and the number of the first of them, from 1. UsageError for
    a line of more than 64 MiB."""
    read = getattr(stream, "readinto1", None) or stream.readinto  # type: ignore[attr-defined]
    number = 1
    size = lines = passed = 0
    block = np.empty(0, np.uint8)
    while True:
        wanted = min(max(passed, _FIRST_BYTES), _BLOCK_BYTES)
        if len(block) - size < wanted:  # what is read is copied only where a line goes on in the next block
            block = _with_room(block[:size], wanted)
        count = read(block[size : size + wanted])
        if not count:
            break
        # several times as fast as to count them in bytes, which goes from one to the next
        lines += int(np.count_nonzero(block[size : size + count] == _LINE_END))
        passed += count
        size += count
        if (size < wanted and lines < _BLOCK_LINES) or (not lines and size <= MAXIMUM_LINE):
            continue
        # what was read at a time is shorter than a line may be: only the first one can be too long
        if not lines or _first_end(block[:size]) >= MAXIMUM_LINE:
            raise UsageError(f"line {number} is longer than {MAXIMUM_LINE} bytes", hint="one message a line")
        cut = size - _first_end(block[:size][::-1])
        yield number, block[:cut].data
        number += lines
        block, size, lines = block[cut:size], size - cut, 0
    if size:
        yield number, block[:size].data


def _with_room(begun: Bytes, wanted: int) -> Bytes:
    """Return the beginning of a line, with space for as much and for `wanted` bytes more: a long line is not copied
    often."""
    grown = np.empty(2 * len(begun) + wanted, np.uint8)
    grown[: len(begun)] = begun
    return grown


def _first_end(text: Bytes) -> int:
    """The place of the first line end; there is one."""
    at = 0
    while not (found := text[at : at + _SEARCHED] == _LINE_END).any():
        at += _SEARCHED
    return at + int(found.argmax())


def _piece(number: int, text: memoryview, as_stored: bool, needs_ids: bool) -> MessagePiece:
    """The piece of a block, as rows."""
    from rmqctl.messages.json_rows import LineRows

    found = LineRows(text, as_stored, needs_ids)
    errors = {number + line: why for line, why in found.errors.items()}
    plain = functools.partial(_plain_piece, number, text, as_stored)
    numbers = (found.lines + number).tolist()
    return MessagePiece(numbers, len(text), found.rows, errors, plain, identify=found.give_ids if needs_ids else None)


def _plain_pieces(number: int, text: memoryview, as_stored: bool) -> Iterator[MessagePiece]:
    """The plain twin: line by line."""
    lines = io.BytesIO(text)
    while some := list(zip(range(_PIECE_LINES), lines, strict=False)):
        part = b"".join(line for _, line in some)
        yield _plain_piece(number, part, as_stored)
        number += len(some)


def _plain_piece(number: int, text: bytes | memoryview, as_stored: bool) -> MessagePiece:
    numbers: list[int] = []
    messages: list[Message] = []
    errors: dict[int, str] = {}
    new: list[bool] = []
    for place, line in enumerate(io.BytesIO(text), start=number):
        one = _message(line, as_stored)
        if isinstance(one, tuple):
            numbers.append(place)
            messages.append(one[0])
            new.append(one[1])
        elif one is not None:
            errors[place] = one
    return MessagePiece(numbers, len(text), messages, errors, new=new)


def _message(line: bytes, as_stored: bool) -> tuple[Message, bool] | str | None:
    """The message of a line and whether it is new, or what is wrong with it; None for a blank one."""
    if not line.strip():
        return None
    try:
        return message_from_line(line, as_stored)
    except UsageError as error:
        return error.message
