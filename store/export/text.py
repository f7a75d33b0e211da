"""A writer of lines of text into a file: JSON Lines and CSV. What a line says is up to the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqctl.store.outputs.outputs import OutputFile

LineRecord = Mapping[str, Any]


class LineWriter:
    """Records as lines, behind an optional first line."""

    pending_bytes = 0

    def __init__(self, output: OutputFile, line_of: Callable[[LineRecord], str], header: str = "") -> None:
        """`line_of` makes the line of a record, its line end included."""
        self._output = output
        self._line_of = line_of
        self._output.write(header.encode("utf-8"))

    def write(self, record: LineRecord) -> None:
        """Write one record."""
        self._output.write(self._line_of(record).encode("utf-8"))

    def flush(self) -> None:
        """Nothing is gathered here."""

    def close(self) -> None:
        """Nothing is left."""
