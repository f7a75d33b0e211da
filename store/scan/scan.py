"""The scan: messages of the commitlog as record batches, in the order they were stored, past damage."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.row_filter import RowChooser
from rmqctl.store.scan.chosen import CONTENT, SCAN_THREADS, LogRange, scanned
from rmqctl.store.scan.schema import column_names, needed, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.scan.batches import BatchMaker


class Scan:
    """What to scan for; `batches` does it. UnsupportedError without pyarrow, UsageError for a name of no column."""

    def __init__(
        self,
        log: MappedFileQueue,
        columns: Sequence[str] | None = None,
        begin: int = 0,
        end: int | None = None,
        *,
        criteria: Criteria | None = None,
        views: bool = True,
        threads: int = SCAN_THREADS,
    ) -> None:
        """Messages of `criteria` whose physical offset is in [begin, end), with these columns; None: all.

        A `begin` that is no frame's start is taken as: from the next message on. `views`: bodies as `binary_view`
        over the memory they were read into, which is not copied; else as `binary`. Such batches must not be written
        to Arrow IPC: each would take its whole memory along.
        """
        require_pyarrow()

        names = column_names(columns)
        self._log = log
        self._begin = begin
        self._end = end
        self._threads = threads
        self._chooser = RowChooser(criteria or Criteria(), begin)
        self._groups = needed(names) | self._chooser.needs
        if self._chooser.needs & CONTENT:
            # what was read and checked is looked at, not what the file holds a moment later
            self._groups |= Columns.BYTES
        from rmqctl.store.scan.batches import BatchMaker

        self._maker: BatchMaker = BatchMaker(names, views)

    @property
    def schema(self) -> pa.Schema:
        """That of the batches."""
        return self._maker.schema

    def batches(self, events: Events = Events()) -> Generator[pa.RecordBatch, None, None]:
        """The batches, none of them empty. Damage is reported and skipped; where nothing takes it the first is raised
        in its place. A note is a sentence about what is removed before it was read (walk.RemovedMeanwhile)."""
        file = self._log.find(self._begin)
        start = file.start_offset if file is not None else self._begin
        span = LogRange(self._begin, self._end, start)
        yield from scanned(self._log, span, self._groups, self._chooser, self._maker, events, threads=self._threads)
