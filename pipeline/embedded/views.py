"""The views of a store as datasets of Arrow, which DuckDB asks for the columns and the rows that a query needs.

Only `schema` and `scanner` are asked for: DuckDB calls the second one each time that a query begins to read a view,
with the columns that it needs and the filter that it relies on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow_dataset

from rmqctl.formats.errors import CorruptError
from rmqctl.pipeline.embedded.arrow_filters import understood
from rmqctl.pipeline.embedded.message_scan import MESSAGES, message_batches
from rmqctl.pipeline.source.fitting import fitted, labelled
from rmqctl.pipeline.source.options import SourceOptions
from rmqctl.pipeline.source.planning import asked_stores
from rmqctl.pipeline.source.readers import READERS
from rmqctl.pipeline.source.tables import CHEAPEST, STORE_COLUMNS, TABLES
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.scan.schema import COLUMNS, arrow_schema
from rmqctl.store.store_files import StoreFiles

_MOMENT = pa.timestamp("us", "UTC")
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": _MOMENT,
    "binary": pa.binary(),
}


def _nobody(_: int) -> None:
    """Is told how many bytes were read."""


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
        """Another query; `advance` is told the bytes of the log that are read for it, in any thread."""
        self._stopped.clear()
        self.error = None
        self._bodies.clear()
        self._advance = advance or _nobody

    def stop(self) -> None:
        """The query is not wanted any more: whatever reads for it ends soon."""
        self._stopped.set()

    def passed(self, size: int) -> None:
        """So many bytes more of the log; raises Interrupted in whoever reads in vain."""
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
    """A view of the stores that `options` name, read anew by every query, one after the other."""

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
                        files, options, self._schema, names, expression, self._reading.passed, on_body
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
