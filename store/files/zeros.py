"""Where a file of a store holds anything but zeros: its holes are not read, and what is read ends with its last byte.

Store files are made at their full size, so most of a young one is a hole or zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.store.files.presence import no_answer
from rmqctl.store.files.reading import Descriptors, file_elsewhere

_CHUNK = 1 << 20
_SMALL = 16 * 1024
# what a server is asked for at the least
_PROBE = 64 * 1024
_ZEROS = bytes(_CHUNK)
# 1048576, 524288 … 2, 1 zeros
_RUNS_OF_ZEROS = tuple(bytes(_CHUNK >> power) for power in range(_CHUNK.bit_length()))


def data_extents(path: Path, begin: int, end: int, descriptors: Descriptors | None = None) -> Iterator[tuple[int, int]]:
    """Ranges of [begin, end) that may hold anything but zeros: holes of sparse files are left out.

    With `descriptors` the file is looked at as it is open there. RemovedError, UnreadableError.
    """
    if (remote := file_elsewhere(path)) is not None:
        if begin < min(end, remote.size):
            yield begin, min(end, remote.size)
        return
    if descriptors is None:
        with Descriptors() as own:
            descriptor = own.duplicate(path)
    else:
        descriptor = descriptors.duplicate(path)
    try:
        position = begin
        while position < end:
            try:
                start = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left; other systems: no support, then everything counts as data
                if _size_of(descriptor, path) > position and not _knows_holes(descriptor):
                    yield position, end
                return
            stop = os.lseek(descriptor, start, os.SEEK_HOLE)
            if start >= end:
                return
            yield start, min(stop, end)
            position = stop
    finally:
        os.close(descriptor)


def _size_of(descriptor: int, path: Path) -> int:
    try:
        return os.fstat(descriptor).st_size
    except OSError as error:
        raise no_answer(error, path) from error


def _knows_holes(descriptor: int) -> bool:
    try:
        os.lseek(descriptor, 0, os.SEEK_HOLE)
    except OSError:
        return False
    return True


def first_nonzero(descriptors: Descriptors, path: Path, begin: int, end: int) -> int | None:
    """Position of the first byte in [begin, end) that is not zero."""
    for start, stop in data_extents(path, begin, end, descriptors):
        for position in range(start, stop, _CHUNK):
            chunk = descriptors.read(path, position, min(_CHUNK, stop - position))
            if chunk != _ZEROS and (rest := chunk.lstrip(b"\0")):
                return position + len(chunk) - len(rest)
    return None


def end_of_nonzero(descriptors: Descriptors, path: Path, begin: int, end: int) -> int:
    """Position behind the last byte in [begin, end) that is not zero; `begin` if all are zero."""
    if end <= begin:
        return begin
    if end - begin <= _SMALL:  # read sooner than looked at for holes
        return begin + _length_without_zeros(descriptors.read(path, begin, end - begin))
    if (remote := file_elsewhere(path)) is not None and end == remote.size:
        last = descriptors.read(path, max(begin, end - _PROBE), _PROBE)
        if not _length_without_zeros(last) and (known := remote.end_of_data) is not None:
            return max(begin, known)
    for start, stop in reversed(list(data_extents(path, begin, end, descriptors))):
        position = stop
        while position > start:
            at = max(start, position - _CHUNK)
            if length := _length_without_zeros(descriptors.read(path, at, position - at)):
                return at + length
            position = at
    return begin


def _length_without_zeros(data: bytes) -> int:
    """Bytes of `data`, which are _CHUNK at most, up to the last one that is not zero. Runs of zeros are compared at
    once, which is many times as fast as byte by byte."""
    end = len(data)
    for zeros in _RUNS_OF_ZEROS:
        if data.endswith(zeros, 0, end):
            end -= len(zeros)
    return end
