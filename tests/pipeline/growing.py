"""A log that grows as under a broker, for tests of streams: files full of zeros from the start, frames by halves."""

from __future__ import annotations

import time
from pathlib import Path

from rmqctl.store.files.layout import file_name
from tests.store.logs import blank, frame

FILE_SIZE = 16384


class Writer:
    """A broker's appends. `offsets` are those of the messages that the log has now."""

    def __init__(self, store: Path, first: int = 0, clock: int = 1_700_000_000_000) -> None:
        self.store = store
        self.folder = store / "commitlog"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.offsets: list[int] = []
        self.position = first
        self._clock = clock

    def put(self, pause: float = 0.0, size: int | None = None) -> int:
        """Append a message; returns its physical offset. Each has another time, as under a clock."""
        number = len(self.offsets)
        body = b"x" * (number * 37 % 400 if size is None else size)
        made = frame(
            self.position,
            body,
            queue_offset=number,
            properties={"KEYS": f"k{number}"},
            store_timestamp=self._clock + 1,
        )
        left = FILE_SIZE - self.position % FILE_SIZE
        if len(made) + 8 > left:
            self._write(blank(left), 0)
            return self.put(pause, size)
        self._clock += 1
        self.offsets.append(self.position)
        self._write(made, pause)
        return self.offsets[-1]

    def put_many(self, count: int) -> list[int]:
        """Append so many messages; returns their physical offsets."""
        return [self.put() for _ in range(count)]

    def cut(self, at: int) -> None:
        """End the log at physical offset `at`, as a recovery does: later files go, the rest becomes zeros."""
        for path in sorted(self.folder.iterdir()):
            start = int(path.name)
            if start >= at:
                path.unlink()
            elif at < start + FILE_SIZE:
                path.write_bytes(path.read_bytes()[: at - start].ljust(FILE_SIZE, b"\0"))
        self.offsets = [offset for offset in self.offsets if offset < at]
        self.position = at

    def clean(self, before: int) -> None:
        """Remove the files that end at or before physical offset `before`."""
        for path in sorted(self.folder.iterdir()):
            if int(path.name) + FILE_SIZE <= before:
                path.unlink()

    def _write(self, data: bytes, pause: float) -> None:
        start = self.position - self.position % FILE_SIZE
        path = self.folder / file_name(start)
        if not path.exists():
            path.write_bytes(bytes(FILE_SIZE))
        half = len(data) * 2 // 3
        with path.open("r+b", buffering=0) as file:
            file.seek(self.position - start)
            file.write(data[:half])
            time.sleep(pause)
            file.write(data[half:])
        self.position += len(data)
