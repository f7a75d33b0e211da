"""What tasks hand to the tasks after them: one file a task, its entries sorted into buckets.

Such a file lies in a folder that all machines see. Each entry has a key (plain values, as JSON has them) and bytes; a
reader takes all entries of one bucket, in the order they were put, without reading the others. Layout: the bytes of
all entries, then for each bucket a list of [key, position, length] as JSON, then (position, length) of each list.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import UnreadableError, refuse_exhausted
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors

_PLACE = struct.Struct("<QQ")
_BUFFER = 1 << 20
_CUT = "is not what was written: it has become shorter"

_Buffer = bytes | bytearray


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of a name: the same on every machine and in every process."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % buckets


class ShuffleWriter:
    """Writes such a file. The folder must be there; WriteFailedError. `close` in any case.

    It is not flushed onto the disk: it matters as long as the job runs, and a lost one is missed by who reads it.
    """

    def __init__(self, path: Path, buckets: int) -> None:
        self.path = path
        self._entries: list[list[tuple[Any, int, int]]] = [[] for _ in range(buckets)]
        self._buffer = bytearray()
        self._written = 0
        io.create_file(path, 0)
        self._descriptor: int | None = io.open_for_writing(path)

    def put(self, bucket: int, key: Any, data: Sequence[_Buffer] = ()) -> None:
        """The next entry of a bucket; its bytes may come in pieces."""
        length = sum(map(self._write, data))
        self._entries[bucket].append((key, self._written + len(self._buffer) - length, length))

    def _write(self, data: _Buffer) -> int:
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self._drain()
        return len(data)

    def _drain(self) -> None:
        assert self._descriptor is not None
        io.write_at(self._descriptor, self.path, self._written, self._buffer)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def finish(self) -> None:
        """The file is complete: another machine may be the one to read it."""
        places = []
        for entries in self._entries:
            packed = json.dumps(entries).encode("ascii")
            places.append((self._written + len(self._buffer), len(packed)))
            self._write(packed)
        self._write(b"".join(_PLACE.pack(*place) for place in places))
        self._drain()
        self.close()

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ShuffleReader:
    """Reads such files."""

    def __init__(self, path: Path, buckets: int, descriptors: Descriptors) -> None:
        self._path = path
        self._buckets = buckets
        self._descriptors = descriptors

    def entries(self, bucket: int) -> Iterator[tuple[Any, int, int]]:
        """Key, position and length of each entry of a bucket; UnreadableError, also for a file that is not whole."""
        try:
            size = os.stat(self._path).st_size
        except OSError as error:
            refuse_exhausted(error, self._path)
            raise UnreadableError(f"cannot be read: {error.strerror}", file=self._path) from error
        lists_end = size - _PLACE.size * self._buckets
        if lists_end < 0:
            raise UnreadableError(_CUT, file=self._path)
        places = self.read(lists_end + _PLACE.size * bucket, _PLACE.size * (self._buckets - bucket))
        if sum(_PLACE.unpack_from(places, len(places) - _PLACE.size)) != lists_end:
            raise UnreadableError(_CUT, file=self._path)
        yield from json.loads(self.read(*_PLACE.unpack_from(places, 0)))

    def read(self, position: int, length: int) -> bytes:
        """The bytes of an entry."""
        data = self._descriptors.read(self._path, position, length)
        if len(data) < length:
            raise UnreadableError(_CUT, file=self._path)
        return data
