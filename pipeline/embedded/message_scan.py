"""The view `messages` for a query in this process: what of the log may hold what is wanted, walked in threads.

Filters are held against the messages twice: comparisons that the walk's own columns can answer before anything is made
of a message (`Wanted`), then the whole filter on the columns that it names. Only of what passes is made what is asked
for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.pipeline.embedded.arrow_filters import understood
from rmqctl.pipeline.source.fitting import fitted, labelled
from rmqctl.pipeline.source.options import SourceOptions
from rmqctl.pipeline.source.planning import LogTask, plan_tasks, spans_of
from rmqctl.pipeline.source.tables import CHEAPEST
from rmqctl.pipeline.source.wanted import Wanted, wanted_by
from rmqctl.pipeline.splits.named import span_columns
from rmqctl.pipeline.splits.splits import first_record
from rmqctl.store.columns.batch import Columns, Int64s, MessageColumns
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.read.selection import OnDamage
from rmqctl.store.scan.batches import BatchMaker
from rmqctl.store.scan.scan import SCAN_ROWS, SCAN_WINDOW, LogRange, Maker, scanned
from rmqctl.store.scan.schema import needed
from rmqctl.store.store_files import StoreFiles

_ROW = "row"
MESSAGES = "messages"
_FEWEST_THREADS, _MOST_THREADS = 2, 8


def message_batches(
    files: StoreFiles,
    options: SourceOptions,
    schema: pa.Schema,
    names: Sequence[str],
    expression: pc.Expression | None,
    progress: Progress | None = None,
    on_body: OnDamage | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns `names` of good messages that pass a filter, in the log's order. `schema`: of all columns, and those
    that tell stores apart. `on_body` is told bodies that do not unpack: those that were filtered are told again where
    they are given."""
    said = understood(expression)
    wanted = wanted_by(said.comparisons)
    looked_at = [name for name in schema.names if said.fields is None or name in said.fields] or [CHEAPEST[MESSAGES]]
    maker = _FilteringMaker(schema, names, looked_at, expression, options.labels, on_body)
    groups = needed([name for name in (*names, *looked_at) if name not in options.labels]) | wanted.needs
    threads = max(_FEWEST_THREADS, min(_MOST_THREADS, len(os.sched_getaffinity(0))))
    for part in _parts(files, options, wanted):
        if isinstance(part, LogRange):
            yield from scanned(files.log, part, groups, wanted, maker, lambda _: None, progress, threads=threads)
            continue
        yield from _spanned(files, part, groups, wanted, maker)
        if progress is not None:
            progress(part.split.end - part.split.begin)


def _spanned(
    files: StoreFiles, task: LogTask, groups: Columns, wanted: Wanted, maker: Maker
) -> Iterator[pa.RecordBatch]:
    """What `maker` makes of wanted messages in the spans of a task."""
    spans = task.spans or ()
    for record in span_columns(
        files, task.split, spans, columns=groups or Columns.HEAD, window=SCAN_WINDOW, rows=SCAN_ROWS
    ):
        if isinstance(record, MessageColumns):
            yield from maker.batches(record.take(wanted.rows(record)))


def _parts(files: StoreFiles, options: SourceOptions, wanted: Wanted) -> Iterator[LogRange | LogTask]:
    """What of the log may hold wanted messages: ranges to walk, neighbours as one, and splits with spans to read."""
    walked: LogRange | None = None
    for task in plan_tasks(files, options, wanted):
        split, spans = task.split, spans_of(files, task, wanted)
        if walked is not None and spans is None and walked.end == split.begin:
            walked = walked._replace(end=split.end)
            continue
        if walked is not None:
            yield walked
        walked = None
        if spans is None:
            walked = LogRange(split.begin, split.end, first_record(files, split.begin))
        else:
            yield LogTask(split, tuple(spans))
    if walked is not None:
        yield walked


class _FilteringMaker:
    """Makes batches of `names` of the messages that pass a filter on the columns `looked_at`."""

    def __init__(
        self,
        schema: pa.Schema,
        names: Sequence[str],
        looked_at: Sequence[str],
        expression: pc.Expression | None,
        labels: Mapping[str, str | None],
        on_body: OnDamage | None = None,
    ) -> None:
        self._expression = expression
        self._asked = _FittingMaker(schema, names, labels, on_body)
        self._looked_at = _FittingMaker(schema, looked_at, labels, on_body)

    @property
    def needs_bodies(self) -> bool:
        return self._asked.needs_bodies or (self._expression is not None and self._looked_at.needs_bodies)

    def batches(self, batch: MessageColumns) -> Iterator[pa.RecordBatch]:
        """None of them empty."""
        passing = batch if self._expression is None else batch.take(self._passing(batch))
        yield from self._asked.batches(passing)

    def _passing(self, batch: MessageColumns) -> Int64s:
        found: list[Int64s] = [np.empty(0, np.int64)]
        first = 0
        for made in self._looked_at.batches(batch):
            rows = pa.array(np.arange(first, first + made.num_rows))
            found.append(made.append_column(_ROW, rows).filter(self._expression).column(_ROW).to_numpy())
            first += made.num_rows
        return np.concatenate(found)


class _FittingMaker(BatchMaker):
    """Makes batches with the types of the view, and with `labels` in the columns that tell stores apart."""

    def __init__(
        self,
        schema: pa.Schema,
        names: Sequence[str],
        labels: Mapping[str, str | None],
        on_body: OnDamage | None,
    ) -> None:
        read = [name for name in names if name not in labels] or [CHEAPEST[MESSAGES]]
        super().__init__(read, views=False, on_damage=on_body)
        self._fit = pa.schema([schema.field(name) for name in names])
        self._labels = labels

    def batches(self, batch: MessageColumns) -> Iterator[pa.RecordBatch]:
        for made in super().batches(batch):
            arrays = dict(zip(self.names, made.columns, strict=True))
            yield fitted(labelled(arrays, self._labels, made.num_rows), self._fit)
