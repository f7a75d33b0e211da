"""The data source that Spark sees: `spark.read.format("rocketmq")`, and `readStream` for messages.

A reader only plans and reads; what its batches hold is made by the modules beside it. Spark starts a Python process for
each step of planning, so nothing here loads a compiler; that is left to the tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.spark.options import SourceOptions, parse_options, view_schema
from rmqctl.pipeline.spark.planning import asked_stores, fitted, labelled, plan_tasks
from rmqctl.pipeline.spark.split_task import SplitPartition, read_split, subscribed
from rmqctl.pipeline.splits import open_in_task
from rmqctl.pipeline.sql.stores import sentence_first
from rmqctl.pipeline.views import CHEAPEST, STORE_COLUMNS, TABLES
from rmqctl.pipeline.wanted import Comparison, wanted_by
from rmqctl.store.files.remote import list_anew
from rmqctl.store.log.survey import end_of_messages
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader

# the program in which Spark plans a read whose filters it wants to hand over
_PUSHING_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"


class RocketMQSource(DataSource):
    """A store of RocketMQ. Options: `options.OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is called with."""
        return "rocketmq"

    @sentence_first
    def schema(self) -> StructType:
        """The columns asked for; all of the view if none are. UsageError for wrong options, NotAStoreError."""
        options = parse_options(self.options)
        for one in options.stores():
            StoreFiles(Path(one.path), one.store_config()).close()
        return view_schema(options.view, options.all_columns)

    @sentence_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of `schema`, which may be some of the view's."""
        options = _with_columns(parse_options(self.options), schema)
        is_pushing = options.push_filters and _may_push()
        if options.view != "messages":
            return PushingTableReader(options, schema) if is_pushing else TableSourceReader(options, schema)
        return PushingMessageReader(options, schema) if is_pushing else MessageReader(options, schema)

    @sentence_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader that follows the commitlogs."""
        from rmqctl.pipeline.spark.stream import MessageStreamReader

        options = _with_columns(parse_options(self.options), schema)
        if options.view != "messages":
            raise UsageError(f"{options.view} cannot be streamed", hint="only messages can")
        if options.ending_offset is not None or options.ending_timestamp is not None:
            raise UsageError("a stream has no ending_offset and no ending_timestamp", hint="leave it out")
        if options.queue_bounds:
            raise UsageError(
                "a stream begins at one place of the log, not at one of each queue",
                hint='begin with .option("starting_timestamp", MS), and where("queue_offset >= …")',
            )
        return MessageStreamReader(options, schema)


def _with_columns(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with the columns of `schema`; UsageError unless they are columns of the view, with its types."""
    names = tuple(schema.names)
    if not names:
        raise UsageError("the schema has no column")
    known = view_schema(options.view, (*TABLES[options.view].columns, *STORE_COLUMNS))
    for field in schema.fields:
        if field.name not in known.names or known[field.name].dataType != field.dataType:
            raise UsageError(f"{options.view} has no column {field.name} of type {field.dataType.simpleString()}")
    return options._replace(columns=names)


def _may_push() -> bool:
    """Whether Spark is about to hand over filters. It refuses a reader that would take them when it is not."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_PLANNER in sys.modules or getattr(main, "name", None) == _PUSHING_PLANNER


class TablePartition(InputPartition):
    """A task over a part of another view of a store; what a part is, that view's reader knows."""

    def __init__(self, options: SourceOptions, files: StoreFiles, part: Any) -> None:
        super().__init__(part)
        self.store = options.path
        self.listing = files.listing
        self.labels = options.labels
        self.config = files.config
        self.part = part


class _StoreReader(DataSourceReader):
    """A reader of the stores that are asked for, one after the other."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._comparisons: Sequence[Comparison] = ()

    @sentence_first
    def partitions(self) -> Sequence[InputPartition]:
        """A task for each part of a store that may hold something wanted."""
        tasks: list[InputPartition] = []
        for options in asked_stores(self._options, self._comparisons):
            list_anew(options.path)
            with StoreFiles(Path(options.path), options.store_config()) as files:
                tasks += self._parts(options, files)
        return tasks or [InputPartition(None)]

    def _parts(self, options: SourceOptions, files: StoreFiles) -> Iterable[InputPartition]:
        raise NotImplementedError


class MessageReader(_StoreReader):
    """Reads messages, all splits of the log."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._wanted = subscribed(options)

    def _parts(self, options: SourceOptions, files: StoreFiles) -> Iterable[InputPartition]:
        planned = plan_tasks(files, options, self._wanted, *_asked_for(options, files))
        return [SplitPartition(task, options.labels) for task in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the schema."""
        self._options.use_storage()
        return read_split(partition, self._schema, self._wanted, fails_on_damage=self._options.fail_on_damage)


class PushingMessageReader(MessageReader):
    """The same for a session that hands filters over (spark.sql.python.filterPushdown.enabled=true).

    Spark keeps the plan of such a reader with the loaded DataFrame, and uses it for later queries of that DataFrame,
    even without any filter (PythonDataSourceV2#setReadInfo). So the user confirms that there is one query only: the
    option `push_filters`.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Take notice of what can be wanted. All filters are still Spark's to apply: they only save reading here."""
        self._comparisons = list(comparisons(filters))
        self._wanted = wanted_by(self._comparisons, subscribed(self._options))
        return filters


def _asked_for(options: SourceOptions, files: StoreFiles) -> tuple[int | None, int | None]:
    """From which physical offset to which one a query without a stream reads; None: from or to the end of the log."""
    begin = options.starting_offset
    if begin == "latest":
        begin = end_of_messages(files.log, max(files.log.min_offset, 0))
    return (begin if isinstance(begin, int) else None), options.ending_offset


class TableSourceReader(_StoreReader):
    """Reads any other view."""

    def _parts(self, options: SourceOptions, files: StoreFiles) -> Iterable[InputPartition]:
        from rmqctl.pipeline.spark.readers import READERS

        return [TablePartition(options, files, part) for part in READERS[options.view].parts(files)]

    @sentence_first
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the schema."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from rmqctl.pipeline.spark.readers import READERS

        if not isinstance(partition, TablePartition):
            return
        self._options.use_storage()
        view = self._options.view
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        names = [name for name in self._schema.names if name not in partition.labels] or [CHEAPEST[view]]
        with open_in_task(partition.store, partition.config, partition.listing) as files:
            for columns in READERS[view].batches(files, partition.part, names, None):
                yield fitted(labelled(columns, partition.labels, len(columns[names[0]])), arrow_schema)


class PushingTableReader(TableSourceReader):
    """The same for a session that hands filters over: they tell which stores are asked for."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Take notice of the stores. All filters are still Spark's to apply."""
        self._comparisons = list(comparisons(filters))
        return filters


def comparisons(filters: Iterable[Filter]) -> Iterator[Comparison]:
    """Those of the filters that compare a column with constants; all of them have to hold."""
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1:
            continue
        if isinstance(one, In):
            yield Comparison(column[0], "in", tuple(one.value))
        elif isinstance(one, EqualTo | EqualNullSafe):
            yield Comparison(column[0], "=", (one.value,))
        elif isinstance(one, GreaterThan | GreaterThanOrEqual):
            yield Comparison(column[0], ">", (one.value,))
        elif isinstance(one, LessThan | LessThanOrEqual):
            yield Comparison(column[0], "<", (one.value,))
