"""Loads and tries the kernels that write texts, and gives them their arrays: twins of functions of `text_arrays`.

Importing this module imports pyarrow.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.output.sanitise import UNSAFE_RANGES
from rmqctl.store.compiled.tried import loaded_once, tried_kernels

_LARGEST = (1 << 31) - 1
_SHORT = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t", "\f": "f", "\b": "b"}
_SAMPLE = ["", None, 'a "\\\n\x01\x7f', "clean", "long enough for words: ä\u202e\U0001f600\U000e0041", "\x85 \ud7ff"]
_ESCAPED = [
    "",
    None,
    'a \\"\\\\\\n\\u0001\\u007f',
    "clean",
    "long enough for words: ä\\u202e\U0001f600\\udb40\\udc41",
    "\\u0085 \ud7ff",
]


class TextKernels(NamedTuple):
    """The two kernels of `rmqctl.store.export.kernel_lines`, for Arrow arrays of strings."""

    escape: Callable[..., int]
    join: Callable[..., int]

    def escaped(self, texts: pa.Array) -> pa.Array:
        """Texts as they stand between quotes in JSON; null where they are null."""
        rows = len(texts)
        if not rows:
            return texts
        present = texts.is_valid().buffers()[1] if texts.null_count else None
        filled = _filled(texts)
        edges = _edges(filled)
        made = np.zeros(rows + 1, np.int32)
        given = (*_addresses(filled), rows, _short_escapes(), _unsafe_points(), made)
        size = self.escape(*given, 0)
        if size == edges[-1] - edges[0]:  # every escape is longer than what it stands for
            return texts
        target = np.empty(_checked(size), np.uint8)
        self.escape(*given, target.ctypes.data)
        return pa.Array.from_buffers(pa.string(), rows, [present, *map(pa.py_buffer, (made, target))])

    def joined(self, parts: Sequence[str | pa.Array]) -> pa.Array:
        """Arrays of as many texts, and constants, one behind the other row by row; a null is nothing. There is an
        array at least."""
        merged = _merged(parts)
        rows = next(len(part) for part in merged if not isinstance(part, bytes))
        held = np.frombuffer(b"".join(part for part in merged if isinstance(part, bytes)) + b"\0", np.uint8)
        places = np.zeros((3, len(merged)), np.int64)
        constant, size = held.ctypes.data, 0
        for number, part in enumerate(merged):
            if isinstance(part, bytes):
                places[:, number] = 0, constant, len(part)
                constant += len(part)
                size += rows * len(part)
            elif rows:
                edges = _edges(part)
                places[:2, number] = _addresses(part)
                size += int(edges[-1] - edges[0])
        made, target = np.zeros(rows + 1, np.int32), np.empty(_checked(size), np.uint8)
        self.join(*places, rows, made, target.ctypes.data)
        return pa.Array.from_buffers(pa.string(), rows, [None, *map(pa.py_buffer, (made, target))])


def text_kernels() -> TextKernels | None:
    """The compiled twins; None where nothing can be compiled."""
    return _load()


@loaded_once
def _load() -> TextKernels | None:
    found = tried_kernels(
        "rmqctl.store.export.kernel_lines", lambda tried: _is_right(TextKernels(*tried)), is_waited_for=False
    )
    return None if found is None else TextKernels(*found)


def _is_right(tried: TextKernels) -> bool:
    """Whether they give what is expected of a few texts."""
    escaped = tried.escaped(pa.array(["left out", *_SAMPLE], pa.string()).slice(1))
    joined = tried.joined(["<", ">", escaped, "|"])
    expected = [f"<>{text or ''}|" for text in _ESCAPED]
    return bool(escaped.to_pylist() == _ESCAPED and joined.to_pylist() == expected)


def _merged(parts: Sequence[str | pa.Array]) -> list[bytes | pa.Array]:
    """The parts without nulls, constants that follow one another as one."""
    merged: list[Any] = []
    for part in parts:
        if not isinstance(part, str):
            merged.append(_filled(part))
        elif merged and isinstance(merged[-1], bytes):
            merged[-1] += part.encode("utf-8")
        else:
            merged.append(part.encode("utf-8"))
    return merged


def _filled(texts: pa.Array) -> pa.Array:
    return texts.fill_null("") if texts.null_count else texts


def _edges(texts: pa.Array) -> NDArray[np.int32]:
    """Where each text begins and the last one ends in the data of the array."""
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _addresses(texts: pa.Array) -> tuple[int, int]:
    """Of the offsets and the data."""
    _, offsets, data = texts.buffers()
    return offsets.address + texts.offset * np.int32().itemsize, data.address if data is not None else 0


def _checked(size: int) -> int:
    if size > _LARGEST:
        raise OverflowError(f"{size} bytes of text in one batch")
    return max(1, size)


@functools.cache
def _short_escapes() -> NDArray[np.uint8]:
    """By byte: the letter behind a backslash that stands for it, else 0. (json.dumps)"""
    table = np.zeros(256, np.uint8)
    for character, letter in _SHORT.items():
        table[ord(character)] = ord(letter)
    return table


@functools.cache
def _unsafe_points() -> NDArray[np.uint8]:
    """By code point: whether a terminal would obey or hide it."""
    table = np.zeros(sys.maxunicode + 1, np.uint8)
    for first, last in UNSAFE_RANGES:
        table[first : last + 1] = 1
    return table
