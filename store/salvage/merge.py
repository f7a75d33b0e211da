"""Messages of many runs in the order of their log: by physical offset, equal ones once."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.store.files.mapped_file import MappedFile

_CHUNK = 1 << 20


class KeptRun(NamedTuple):
    """Good frames at the bytes [position, end) of source number `source`. Sorts by the log's order."""

    physical_offset: int
    source: int
    position: int
    end: int


class Found(NamedTuple):
    """A message, and where it was found."""

    message: StoredMessage
    source: int
    position: int


class Merge:
    """Reads the runs again, in order. `duplicates`: messages of which another copy came first."""

    def __init__(self, files: Sequence[MappedFile], runs: list[KeptRun]) -> None:
        self._files = files
        self._runs = sorted(runs)
        self.duplicates = 0

    def messages(self) -> Iterator[Found]:
        """Every message once. Two with the same physical offset and other content are two messages. UnreadableError
        where a source has changed meanwhile."""
        waiting = iter(self._runs)
        following = next(waiting, None)
        heap: list[tuple[int, int, bytes, int, Iterator[tuple[int, bytes, int]]]] = []
        offset, seen = -1, set[bytes]()
        number = 0
        while heap or following is not None:
            while following is not None and (not heap or following.physical_offset < heap[0][0]):
                # a run joins when its turn comes, so that few are open at a time
                _push(heap, number, following.source, self._frames(following))
                number += 1
                following = next(waiting, None)
            physical_offset, order, frame, position, frames = heapq.heappop(heap)
            source = order & 0xFFFFFFFF
            _push(heap, order >> 32, source, frames)
            if physical_offset != offset:
                offset, seen = physical_offset, set()
            digest = hashlib.blake2b(frame, digest_size=16).digest()
            if digest in seen:
                self.duplicates += 1
                continue
            seen.add(digest)
            yield Found(self._decoded(frame, physical_offset, source, position), source, position)

    def _frames(self, run: KeptRun) -> Iterator[tuple[int, bytes, int]]:
        """Physical offset, bytes and position of each frame of a run."""
        file = self._files[run.source]
        window, begin = b"", run.position
        position = run.position
        while position < run.end:
            at = position - begin
            size = int.from_bytes(window[at : at + 4], "big", signed=True) if at + 4 <= len(window) else 0
            if size <= 0 or at + size > len(window):
                head = file.read(position, 4)
                size = int.from_bytes(head, "big", signed=True)
                if not 0 < size <= run.end - position:
                    raise self._changed(run.source, position)
                window, begin, at = file.read(position, min(max(size, _CHUNK), run.end - position)), position, 0
            frame = window[at : at + size]
            if len(frame) < size:
                raise self._changed(run.source, position)
            yield run.physical_offset + position - run.position, frame, position
            position += size

    def one(self, source: int, position: int, physical_offset: int) -> StoredMessage:
        """One message once more."""
        file = self._files[source]
        size = int.from_bytes(file.read(position, 4), "big", signed=True)
        return self._decoded(file.read(position, max(0, size)), physical_offset, source, position)

    def _decoded(self, frame: bytes, physical_offset: int, source: int, position: int) -> StoredMessage:
        try:
            return decode_message(frame, 0, len(frame), physical_offset, check_crc=False, unsigned=True)
        except FrameDamage as damage:
            raise self._changed(source, position) from damage

    def _changed(self, source: int, position: int) -> UnreadableError:
        return UnreadableError(
            "has changed while it was read",
            file=self._files[source].path,
            physical_offset=position,
            hint="salvage from a copy, or when nothing writes to it",
        )


def _push(
    heap: list[tuple[int, int, bytes, int, Iterator[tuple[int, bytes, int]]]],
    number: int,
    source: int,
    frames: Iterator[tuple[int, bytes, int]],
) -> None:
    """The next frame of a run; nothing if it has none. The run's number makes entries differ before their bytes."""
    frame = next(frames, None)
    if frame is not None:
        heapq.heappush(heap, (frame[0], number << 32 | source, frame[1], frame[2], frames))
