"""A file of byte strings put one behind the other, for what a journal has to keep."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.files.early_flush import EarlyFlush
from rmqctl.store.files.reading import pieces_of


@dataclass(frozen=True, slots=True)
class Spilled:
    """Bytes that stand in a file until they are needed: `length` of them at byte `position`.

    Without a `path` only their number is known.
    """

    path: Path | None
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def load(self) -> bytes:
        """The bytes. WriteFailedError if they are not there as they were put; UnreadableError."""
        data = b""
        if self.path is not None:
            data = b"".join(pieces_of(self.path, self.position, self.length))
        if len(data) < self.length:
            raise WriteFailedError(f"lacks {self.length - len(data)} of the bytes that were put", file=self.path)
        return data


def only_counted(data: bytes) -> Spilled:
    """What is left of `data` where nobody is going to write it."""
    return Spilled(None, 0, len(data))


class Blob:
    """Opened with the first `put` or by `with`; `finish` flushes it, `close` does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._digest = hashlib.sha256()
        self._descriptor = -1
        self._flush: EarlyFlush | None = None

    def _open(self) -> None:
        if self._descriptor < 0:
            io.make_directories(self.path.parent)
            self._descriptor = io.open_for_writing(self.path, create=True)
            self._flush = EarlyFlush(self._descriptor, self.path)

    def put(self, data: bytes) -> Spilled:
        """Append `data`; returns where it lies."""
        self._open()
        assert self._flush is not None
        io.write_at(self._descriptor, self.path, self._position, data)
        self._digest.update(data)
        place = Spilled(self.path, self._position, len(data))
        self._position += len(data)
        self._flush.wrote(len(data))
        return place

    @property
    def sha256(self) -> str:
        """Of everything that was put, in hex."""
        return self._digest.hexdigest()

    def finish(self) -> None:
        """Bring everything to disk and close."""
        self._open()
        assert self._flush is not None
        try:
            self._flush.finish()
            io.flush_descriptor(self._descriptor, self.path)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            assert self._flush is not None
            self._flush.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Blob:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()
