"""Lines of text made while the log is walked, split by topic and day if wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files.outputs import OutputFile
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.native.tables import Columns
from rmqctl.store.scan.chosen import Maker

if TYPE_CHECKING:
    from rmqctl.store.export.partitions import Partition


class MadeLines(Protocol):
    """Lines of some messages, and what to report of bodies among them, by row."""

    @property
    def text(self) -> memoryview: ...

    @property
    def rows(self) -> int: ...

    @property
    def damage(self) -> Sequence[tuple[int, CorruptError]]: ...


class LinesOfWalk(Maker[MadeLines], Protocol):
    """Makes lines of text of what a walk of the log gives: `needs` of it."""

    @property
    def needs(self) -> Columns: ...


class TextFile:
    """Lines into one file, at once."""

    pending_bytes = 0

    def __init__(self, output: OutputFile) -> None:
        self._output = output

    def write(self, text: memoryview) -> None:
        """Write some lines."""
        self._output.write(text)

    def flush(self) -> None:
        """Nothing is gathered here."""

    def close(self) -> None:
        """Nothing is left."""


class PartedLines:
    """Makes lines, and says for which partition they are: None unless `is_parted`. `needs`: of the walk."""

    def __init__(self, lines: LinesOfWalk, is_parted: bool) -> None:
        self._lines = lines
        self._is_parted = is_parted
        self.needs_bodies = lines.needs_bodies
        self.needs = lines.needs | Columns.TOPIC | Columns.HEAD if is_parted else lines.needs

    def batches(self, batch: MessageColumns) -> Iterator[tuple[Partition | None, MadeLines]]:
        """The lines in order, of one partition after the other."""
        for partition, rows in self._parts(batch):
            for lines in self._lines.batches(rows):
                yield partition, lines

    def _parts(self, batch: MessageColumns) -> Iterator[tuple[Partition | None, MessageColumns]]:
        if not self._is_parted:
            yield None, batch
            return
        from rmqctl.store.export.partitions import DAY, Partition

        ids, days = batch.topic_id, batch.store_timestamp // DAY
        order = np.lexsort((days, ids))
        changes = np.flatnonzero((np.diff(ids[order]) != 0) | (np.diff(days[order]) != 0)) + 1
        for rows in np.split(order, changes) if batch.rows else ():
            partition = Partition(batch.topic(int(rows[0])), int(days[rows[0]]))
            yield partition, batch if len(rows) == batch.rows else batch.take(rows)
