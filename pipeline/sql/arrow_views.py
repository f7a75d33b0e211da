"""The views of a store as datasets of Arrow, which DuckDB asks for the columns and the rows that a query needs.

Only `schema` and `scanner` are asked for: DuckDB calls the second one each time that a query begins to read a view,
with the columns that it needs and the filter that it relies on.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
from rmqctl.pipeline.views import CHEAPEST, STORE_COLUMNS, TABLES
from rmqctl.pipeline.wanted import Comparison, Wanted, wanted_by
from rmqctl.store.log.columns import Int64s, MessageColumns
from rmqctl.store.log.walk import Progress
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import UNHEARD, Events
from rmqctl.store.read.select import OnDamage
from rmqctl.store.scan.batches import BatchMaker
from rmqctl.store.scan.chosen import SCAN_ROWS, SCAN_WINDOW, LogRange, Maker, scanned
from rmqctl.store.scan.schema import COLUMNS, arrow_schema, needed
from rmqctl.store.store_files import StoreFiles

# Filters that DuckDB hands over, as comparisons: expressions of Arrow, taken apart.
#
# An expression cannot be looked into in Python, but pickled: then it is a record batch, whose metadata is a list of
# steps (`call`, `field_ref`, `literal`, `options`, `end`) and whose columns are the constants (Arrow's
# compute/expression.cc, Expression::Serialize). The names of steps repeat, and pyarrow gives metadata as a dict, so
# they are read where Arrow's C data interface has them. A form that is not known narrows nothing, and asks for every
# column.

_Step = tuple[str, str]

_SIGNS: dict[str, Literal["=", "in", "<", ">"]] = {
    "equal": "=", "less": "<", "less_equal": "<", "greater": ">", "greater_equal": ">", "is_in": "in",
}  # fmt: skip
_ALL_HOLD = ("and", "and_kleene")
_ONE_HOLDS = ("or", "or_kleene")


class _ArrowSchema(ctypes.Structure):
    """The beginning of `struct ArrowSchema` of the C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


class _Node(NamedTuple):
    """A call with its arguments and, where it has some, its options; a field; or a constant."""

    call: str = ""
    arguments: tuple[_Node, ...] = ()
    field: str | None = None
    constant: Any = None
    options: Any = None


class Understood(NamedTuple):
    """`comparisons` have all to hold, beside what is not understood. `fields`: what is looked at; None: not known."""

    comparisons: tuple[Comparison, ...]
    fields: frozenset[str] | None


def understood(expression: pc.Expression | None) -> Understood:
    """What a filter says; of none, nothing."""
    if expression is None:
        return Understood((), frozenset())
    try:
        node = _parsed(expression)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError, StopIteration, pa.ArrowException):
        return Understood((), None)
    return Understood(tuple(_comparisons(node)), frozenset(_fields(node)))


def _parsed(expression: pc.Expression) -> _Node:
    (buffer, *_) = expression.__reduce__()[1]
    reader = pa.ipc.open_file(buffer)
    constants = reader.get_batch(0) if reader.num_record_batches else None
    steps = _steps(reader.schema)
    node = _node(next(steps), steps, constants)
    if next(steps, None) is not None:
        raise ValueError("more than one expression")
    return node


def _node(step: _Step, steps: Iterator[_Step], constants: pa.RecordBatch | None) -> _Node:
    kind, value = step
    if kind == "field_ref":
        return _Node(field=value)
    if kind in ("literal", "options") and constants is not None:
        scalar = constants.column(int(value))[0]
        return _Node(constant=scalar) if kind == "literal" else _Node(options=scalar)
    if kind != "call":
        raise ValueError(kind)
    arguments: list[_Node] = []
    options = None
    for following in steps:
        if following == ("end", value):
            return _Node(value, tuple(arguments), options=options)
        made = _node(following, steps, constants)
        if made.options is not None and not made.call:
            options = made.options
        else:
            arguments.append(made)
    raise ValueError("no end")


def _steps(schema: pa.Schema) -> Iterator[_Step]:
    """The metadata of a schema in its order: a count, then name and value of each, with their lengths before them."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    place = _ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema") or 0).metadata
    texts: list[str] = []
    if place is not None:
        count = ctypes.c_int32.from_address(place).value
        place += 4
        for _ in range(2 * count):
            length = ctypes.c_int32.from_address(place).value
            texts.append(ctypes.string_at(place + 4, length).decode("utf-8"))
            place += 4 + length
    return zip(texts[::2], texts[1::2], strict=True)


def _comparisons(node: _Node) -> Iterator[Comparison]:
    if node.call in _ALL_HOLD:
        for argument in node.arguments:
            yield from _comparisons(argument)
    elif node.call in _ONE_HOLDS:
        yield from _alternatives([list(_comparisons(argument)) for argument in node.arguments])
    elif node.call == "if_else" and len(node.arguments) == 3 and _is_null(node.arguments[2]):
        # null lets nothing pass, so what holds of the second argument holds of all that passes
        yield from _comparisons(node.arguments[1])
    elif node.call in _SIGNS and node.arguments and node.arguments[0].field is not None:
        values = _values(node)
        if values is not None:
            yield Comparison(node.arguments[0].field, _SIGNS[node.call], values)


def _alternatives(sides: list[list[Comparison]]) -> Iterator[Comparison]:
    """What is sure where one of the sides holds, each with all it says: a column has one of the values that they name,
    if all of them name some."""
    first, *others = [{one.column: one.values for one in side if one.sign in ("=", "in")} for side in sides]
    for column, values in first.items():
        if all(column in other for other in others):
            more = [value for other in others for value in other[column]]
            yield Comparison(column, "in", (*values, *more))


def _is_null(node: _Node) -> bool:
    return node.constant is not None and not node.constant.is_valid


def _values(node: _Node) -> tuple[Any, ...] | None:
    try:
        if node.call == "is_in":
            return None if node.options is None else tuple(node.options["value_set"].as_py())
        if len(node.arguments) != 2 or node.arguments[1].constant is None:
            return None
        return (node.arguments[1].constant.as_py(),)
    except (ValueError, OverflowError, LookupError):  # a moment that Python's dates do not reach
        return None


def _fields(node: _Node) -> Iterator[str]:
    if node.field is not None:
        yield node.field
    for argument in node.arguments:
        yield from _fields(argument)


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
        self, schema: pa.Schema, names: Sequence[str], labels: Mapping[str, str | None], on_body: OnDamage | None
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
