"""The views of a store as datasets of Arrow, which DuckDB asks for the columns and the rows that a query needs.

Only `schema` and `scanner` are asked for: DuckDB calls the second one each time that a query begins to read a view,
with the columns that it needs and the filter that it relies on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow_dataset

from rmqctl.formats.errors import CorruptError
from rmqctl.pipeline.queue_pruning import span_columns
from rmqctl.pipeline.spark.options import SourceOptions
from rmqctl.pipeline.spark.planning import ARROW_TYPES, LogTask, asked_stores, fitted, labelled, plan_tasks, spans_of
from rmqctl.pipeline.spark.readers import READERS
from rmqctl.pipeline.splits import first_record
from rmqctl.pipeline.sql.arrow_filters import understood
from rmqctl.pipeline.views import CHEAPEST, STORE_COLUMNS, TABLES
from rmqctl.pipeline.wanted import Wanted, wanted_by
from rmqctl.store.log.columns import Int64s, MessageColumns
from rmqctl.store.log.walk import Progress
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.select import OnDamage
from rmqctl.store.scan.batches import BatchMaker
from rmqctl.store.scan.chosen import SCAN_ROWS, SCAN_WINDOW, LogRange, Maker, scanned
from rmqctl.store.scan.schema import COLUMNS, arrow_schema, needed
from rmqctl.store.store_files import StoreFiles

# The view `messages` for a query in this process: what of the log may hold what is wanted, walked in threads.
#
# Filters are held against the messages twice: comparisons that the walk's own columns can answer before anything is
# made of a message (`Wanted`), then the whole filter on the columns that it names. Only of what passes is made what
# is asked for.

_ROW = "row"
MESSAGES = "messages"
_FEWEST_THREADS, _MOST_THREADS = 2, 8


def message_batches(
    files: StoreFiles,
    options: SourceOptions,
    schema: pa.Schema,
    names: Sequence[str],
    expression: pc.Expression | None,
    events: Events = Events(),
    on_body: OnDamage | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns `names` of good messages that pass a filter, in the log's order. `schema`: of all columns, and those
    that tell stores apart. `on_body` gets bodies that do not unpack: filtered ones again where they are given."""
    said = understood(expression)
    wanted = wanted_by(said.comparisons)
    looked_at = [name for name in schema.names if said.fields is None or name in said.fields] or [CHEAPEST[MESSAGES]]
    maker = _FilteringMaker(schema, names, looked_at, expression, options.labels, on_body)
    groups = needed([name for name in (*names, *looked_at) if name not in options.labels]) | wanted.needs
    threads = max(_FEWEST_THREADS, min(_MOST_THREADS, len(os.sched_getaffinity(0))))
    for part in _parts(files, options, wanted):
        if isinstance(part, LogRange):
            heard = UNHEARD._replace(progress=events.progress)
            yield from scanned(files.log, part, groups, wanted, maker, heard, threads=threads)
            continue
        yield from _spanned(files, part, groups, wanted, maker)
        events.passed(part.split.end - part.split.begin)


def _spanned(
    files: StoreFiles, task: LogTask, groups: Columns, wanted: Wanted, maker: Maker[pa.RecordBatch]
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


_MOMENT = pa.timestamp("us", "UTC")
_TYPES = {**ARROW_TYPES, "timestamp": _MOMENT}


def _nobody(_: int) -> None:
    """Ignore the number of bytes read."""


class Interrupted(Exception):  # noqa: N818 - ends what nobody waits for any more
    """The query was given up."""


class Reading:
    """What goes on while a query reads: whether it is still wanted, what went wrong, how many bytes it has passed."""

    def __init__(self) -> None:
        self._advance: Progress = _nobody
        self._stopped = threading.Event()
        self.error: BaseException | None = None
        self._bodies: dict[tuple[str, int | None], CorruptError] = {}

    def begin(self, advance: Progress | None) -> None:
        """Begin another query; `advance` gets the bytes of the log that are read for it, in any thread."""
        self._stopped.clear()
        self.error = None
        self._bodies.clear()
        self._advance = advance or _nobody

    def stop(self) -> None:
        """Cancel the query: its readers end soon."""
        self._stopped.set()

    def passed(self, size: int) -> None:
        """Count `size` more bytes of the log; raises Interrupted after `stop`."""
        if self._stopped.is_set():
            raise Interrupted
        self._advance(size)

    def read_body(self, store: str, error: CorruptError) -> None:
        """Note a body that does not unpack; a filter and the answer may each read it."""
        self._bodies[store, error.physical_offset] = error

    def bodies(self) -> list[CorruptError]:
        """Return the bodies that the query read as stored because they do not unpack, store by store in the log's
        order."""
        return [error for _, error in sorted(self._bodies.items(), key=lambda one: (one[0][0], one[0][1] or 0))]

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches. DuckDB hands on the text of an error only, so the error itself is kept here."""
        try:
            for batch in batches:
                self.passed(0)
                yield batch
        except Exception as error:
            if self.error is None and not isinstance(error, Interrupted):
                self.error = error
            raise


class StoreView(arrow_dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A view of the stores that `options` name, read again by every query, one after the other."""

    def __init__(self, view: str, options: SourceOptions, reading: Reading) -> None:
        self._view = view
        self._options = options
        self._reading = reading
        self._schema = view_arrow_schema(view, with_stores=options.has_store_columns)

    @property
    def schema(self) -> pa.Schema:
        """All columns, those of `messages` with the cheapest first, which is what is read to count."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> _Scanner:
        """What reads these columns, None: all, of the rows that pass the filter."""
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        return _Scanner(schema, self._reading.watched(self._batches(names, filter)))

    def _batches(self, names: Sequence[str], expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        for options in asked_stores(self._options, understood(expression).comparisons):
            with StoreFiles(Path(options.path), options.store_config()) as files:
                if self._view == MESSAGES:
                    on_body = partial(self._reading.read_body, options.path)
                    yield from message_batches(
                        files, options, self._schema, names, expression, Events(progress=self._reading.passed), on_body
                    )
                else:
                    yield from self._table_batches(files, options.labels, names, expression)

    def _table_batches(
        self,
        files: StoreFiles,
        labels: Mapping[str, str | None],
        names: Sequence[str],
        expression: pc.Expression | None,
    ) -> Iterator[pa.RecordBatch]:
        fields = understood(expression).fields
        looked_at = [name for name in self._schema.names if fields is None or name in fields or name in names]
        schema = pa.schema([self._schema.field(name) for name in looked_at])
        read = [name for name in looked_at if name not in labels] or [CHEAPEST[self._view]]
        reader = READERS[self._view]
        for part in reader.parts(files):
            for arrays in reader.batches(files, part, read, self._reading.passed):
                batch = fitted(labelled(arrays, labels, len(arrays[read[0]])), schema)
                yield (batch if expression is None else batch.filter(expression)).select(list(names))


class _Scanner:
    """What DuckDB makes a stream of."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches)


def view_arrow_schema(view: str, *, with_stores: bool = False) -> pa.Schema:
    """The columns of a view. Texts of few values are dictionaries, which DuckDB takes as texts."""
    further = [pa.field(name, _TYPES[column.kind]) for name, column in STORE_COLUMNS.items() if with_stores]
    if view != MESSAGES:
        fields = [pa.field(name, _TYPES[column.kind]) for name, column in TABLES[view].columns.items()]
        return pa.schema(fields + further)
    names = sorted(COLUMNS, key=lambda name: name != CHEAPEST[view])
    times = (
        field.with_type(_MOMENT) if pa.types.is_timestamp(field.type) else field
        for field in arrow_schema(names, views=False)
    )
    return pa.schema([*times, *further])
