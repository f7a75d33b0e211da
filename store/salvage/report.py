"""What a salvage tells: a summary, and the lost and found as JSON Lines in a file beside the new store."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.store.journal.blob import Blob


@dataclass(slots=True)
class SalvageReport:
    """Counts of messages unless named otherwise. `found`: good ones, stale ones and copies included. `salvaged`: those
    in the new store. `duplicates`: copies of a message that came before. `stale`: older than what precedes them.
    `renumbered`: stored, but not at their old queue offset. `left_out`: good ones that no store should have.
    `strange_*`: what is no message. `causes`: rows of the lost and found by cause."""

    store: str
    lost_and_found: str | None
    sources: int = 0
    bytes_read: int = 0
    runs: int = 0
    found: int = 0
    salvaged: int = 0
    duplicates: int = 0
    stale: int = 0
    renumbered: int = 0
    left_out: int = 0
    strange_spans: int = 0
    strange_bytes: int = 0
    topics: int = 0
    queues: int = 0
    commitlog_file_size: int = 0
    config_files: list[str] = field(default_factory=list)
    causes: dict[str, int] = field(default_factory=dict)


class LostAndFound:
    """Rows: source, begin, end (bytes of the source), cause, detail; `physical_offset`, `topic`, `queue_id` and
    `queue_offset` where a message is meant. Written as they come.

    Of a message with a length that overflows: `properties`, those that the new store lacks; `body_base64` as well where
    the whole message is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blob = Blob(path)
        self.causes: Counter[str] = Counter()

    def add(
        self, source: Path, begin: int, end: int, cause: str, detail: str, **more: int | str | dict[str, str]
    ) -> None:
        """One row. The texts are raw in JSON's own escapes: nothing in the file is outside ASCII."""
        self.causes[cause] += 1
        row = {"source": str(source), "begin": begin, "end": end, "cause": cause, "detail": detail, **more}
        self._blob.put((json.dumps(row) + "\n").encode("ascii"))

    def finish(self) -> None:
        """Everything to disk."""
        self._blob.finish()

    def close(self) -> None:
        """Let go of the file."""
        self._blob.close()
