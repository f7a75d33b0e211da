"""Small stores made message by message, as a broker leaves them; queues can be forgotten, as by deleting a topic."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from rmqctl.formats.checksums import tags_code
from tests.store.logs import blank, frame

LOG_SIZE = 65536
QUEUE_SIZE = 2000
FIRST_TIME = 1_700_000_000_000


class MadeStore:
    """Put messages, then `write` the store. No product code decides what stands where."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = b""
        self.units: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.time = FIRST_TIME

    def put(
        self,
        topic: str,
        body: str,
        *,
        queue_id: int = 0,
        queue_offset: int | None = None,
        properties: Mapping[str, str] | None = None,
        sys_flag: int = 0,
        has_unit: bool = True,
    ) -> int:
        """Append a message and its unit; returns the physical offset."""
        units = self.units.setdefault((topic, queue_id), [])
        self.time += 10
        given = len(units) if queue_offset is None else queue_offset

        def made(at: int) -> bytes:
            return frame(
                at,
                body.encode(),
                topic=topic,
                queue_id=queue_id,
                queue_offset=given,
                store_timestamp=self.time,
                sys_flag=sys_flag,
                properties=properties,
            )

        data = made(len(self.log))
        room = LOG_SIZE - len(self.log) % LOG_SIZE
        if len(data) + 8 > room:
            self.log += blank(room)
            data = made(len(self.log))
        offset = len(self.log)
        self.log += data
        if has_unit:
            units.append((offset, len(data), tags_code((properties or {}).get("TAGS"))))
        return offset

    def also_in(self, topic: str, queue_id: int = 0) -> None:
        """Put the unit of the last message into another queue, too."""
        last = max(unit for units in self.units.values() for unit in units)
        self.units.setdefault((topic, queue_id), []).append(last)

    def forget(self, topic: str, queue_id: int | None = None) -> None:
        """Delete the queues of a topic, or one of them; the log stays."""
        for key in [key for key in self.units if key[0] == topic and queue_id in (None, key[1])]:
            del self.units[key]

    def write(self, *, crashed: bool = False, config: Mapping[str, str] | None = None) -> Path:
        """Write everything to the root, which may not be there yet."""
        for offset in range(0, max(len(self.log), 1), LOG_SIZE):
            self._put(f"commitlog/{offset:020d}", self.log[offset : offset + LOG_SIZE].ljust(LOG_SIZE, b"\0"))
        for (topic, queue_id), units in self.units.items():
            data = b"".join(struct.pack(">qiq", *unit) for unit in units)
            for at in range(0, len(data), QUEUE_SIZE):
                piece = data[at : at + QUEUE_SIZE].ljust(QUEUE_SIZE, b"\0")
                self._put(f"consumequeue/{topic}/{queue_id}/{at:020d}", piece)
        (self.root / "consumequeue").mkdir(exist_ok=True)
        self._put("checkpoint", struct.pack(">qqq", self.time, self.time, 0).ljust(4096, b"\0"))
        if crashed:
            self._put("abort", b"")
        for name, text in (config or {}).items():
            self._put(f"config/{name}", text.encode())
        return self.root

    def _put(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
