"""What was read from a server: blocks of its files, as many as a bound allows, and further ones fetched ahead."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from rmqctl.store.remote.file_system import Listed, RemoteFiles

BLOCK = 64 * 1024
"""The least that is fetched; a file is fetched in blocks from its beginning."""

KEPT_BLOCKS = 64 * 1024 * 1024 // BLOCK
"""How many blocks are kept, those that were asked for last."""

# whoever goes along a file gets twice as much with every request, up to this
_FARTHEST_AHEAD = 64
# of what is fetched at once, each request brings this much, several at the same time
_PART = 16
_AT_THE_SAME_TIME = 4

# name and version of a file, number of the block
_Key = tuple[str, str, int]


class Blocks:
    """Reads files of a server. Can be used by several threads."""

    def __init__(self, files: RemoteFiles, kept_blocks: int = KEPT_BLOCKS) -> None:
        self._files = files
        self._kept_blocks = kept_blocks
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()
        self._coming: dict[_Key, Future[tuple[int, bytes]]] = {}
        # where the last fetch of a file ended, and how many blocks it had
        self._ends: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_AT_THE_SAME_TIME, "remote")

    def read(self, file: Listed, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file. UnreadableError, RemovedError."""
        end = min(position + length, file.size)
        if position >= end:
            return b""
        first, last = position // BLOCK, (end - 1) // BLOCK
        found: list[bytes] = []
        # by and by: what is asked for may be more than is kept
        for begin in range(first, last + 1, _FARTHEST_AHEAD):
            found += self._blocks(file, begin, min(begin + _FARTHEST_AHEAD, last + 1))
        data = found[0] if len(found) == 1 else b"".join(found)
        return data[position - first * BLOCK : end - first * BLOCK]

    def close(self) -> None:
        """Let go of all blocks; what is on its way is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._kept.clear()

    def _blocks(self, file: Listed, begin: int, end: int) -> list[bytes]:
        with self._lock:
            coming = {number: self._coming.get(_key(file, number)) for number in range(begin, end)}
            kept = {number: self._kept_block(_key(file, number)) for number in range(begin, end)}
            missing = [number for number in range(begin, end) if kept[number] is None and coming[number] is None]
            if missing:
                for part in _parts(missing[0], self._ahead(file, missing)):
                    wanted = [number for number in part if _key(file, number) not in self._coming]
                    wanted = [number for number in wanted if _key(file, number) not in self._kept]
                    for first, count in _runs(wanted):
                        future = self._pool.submit(self._fetch, file, first, count)
                        for number in range(first, first + count):
                            self._coming[_key(file, number)] = future
                            coming[number] = future
        return [self._taken(file, number, kept[number], coming[number]) for number in range(begin, end)]

    def _kept_block(self, key: _Key) -> bytes | None:
        block = self._kept.get(key)
        if block is not None:
            self._kept.move_to_end(key)
        return block

    def _ahead(self, file: Listed, missing: list[int]) -> int:
        """Behind which block to stop a fetch of those that are missing: farther on the longer somebody goes along."""
        end, size = self._ends.get(file.name, (-1, 1))
        size = min(2 * size, _FARTHEST_AHEAD) if missing[0] == end else 1
        stop = min(max(missing[-1] + 1, missing[0] + size), -(-file.size // BLOCK))
        self._ends[file.name] = stop, stop - missing[0]
        return stop

    def _taken(self, file: Listed, number: int, kept: bytes | None, coming: Future[tuple[int, bytes]] | None) -> bytes:
        if kept is not None:
            return kept
        assert coming is not None
        first, data = coming.result()
        return data[(number - first) * BLOCK : (number - first + 1) * BLOCK]

    def _fetch(self, file: Listed, first: int, count: int) -> tuple[int, bytes]:
        numbers = range(first, first + count)
        try:
            data = self._files.read(file, first * BLOCK, min((first + count) * BLOCK, file.size))
        except BaseException:
            with self._lock:
                for number in numbers:
                    self._coming.pop(_key(file, number), None)
            raise
        with self._lock:
            for number in numbers:
                at = (number - first) * BLOCK
                self._kept[_key(file, number)] = data[at : at + BLOCK]
                self._coming.pop(_key(file, number), None)
            while len(self._kept) > self._kept_blocks:
                self._kept.popitem(last=False)
        return first, data


def _key(file: Listed, number: int) -> _Key:
    return file.name, file.version, number


def _parts(begin: int, end: int) -> Iterator[range]:
    return (range(at, min(at + _PART, end)) for at in range(begin, end, _PART))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Beginning and length of each run of neighbours."""
    at = 0
    while at < len(numbers):
        length = 1
        while at + length < len(numbers) and numbers[at + length] == numbers[at] + length:
            length += 1
        yield numbers[at], length
        at += length
