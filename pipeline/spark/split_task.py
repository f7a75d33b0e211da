"""A task of Spark over a split of the log: what of it is wanted, and the batches that come of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rmqctl.formats.errors import CorruptError, counted
from rmqctl.pipeline.spark.options import SourceOptions
from rmqctl.pipeline.spark.planning import LogTask, fitted, labelled, spans_of
from rmqctl.pipeline.splits import Split, open_split
from rmqctl.pipeline.sql.stores import sentence_first
from rmqctl.pipeline.views import CHEAPEST
from rmqctl.pipeline.wanted import Range, Wanted
from rmqctl.store.options import Events
from rmqctl.store.store_files import StoreFiles

_LOG = logging.getLogger(__name__)


class SplitPartition(InputPartition):
    """A task over a split of the log of the store that `labels` tell apart from others."""

    def __init__(self, task: LogTask, labels: Mapping[str, str | None]) -> None:
        super().__init__(task)
        self.task = task
        self.labels = labels

    @property
    def split(self) -> Split:
        """What it is about."""
        return self.task.split


def subscribed(options: SourceOptions) -> Wanted:
    """What the options ask for. The source leaves out all other rows: Spark does not filter by them."""
    times = Range()
    if options.starting_timestamp is not None:
        times = times._replace(low=options.starting_timestamp)
    if options.ending_timestamp is not None:
        times = times._replace(high=options.ending_timestamp - 1)
    return Wanted(
        store_times=times,
        topics=options.topics,
        topic_pattern=options.topic_pattern,
        queue_bounds=options.queue_bounds,
        keys=() if options.keys is None else (options.keys,),
    )


def _fail(error: CorruptError) -> None:
    error.hint = error.hint or 'go on without what is damaged with .option("fail_on_damage", "false")'
    raise error


@sentence_first
def read_split(
    partition: InputPartition,
    schema: StructType,
    wanted: Wanted,
    check: Callable[[StoreFiles], None] = lambda _: None,
    *,
    fails_on_damage: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The messages of a split as batches that match `schema` exactly; none for a partition without a split.

    `fails_on_damage`: raise the first damaged span and the first body that does not unpack, else they are logged.
    `check` is called with the store when all was read, to raise where it is not the one that was planned for.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from rmqctl.pipeline.queue_pruning import split_batches

    if not isinstance(partition, SplitPartition):
        return
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    names = [name for name in schema.names if name not in partition.labels] or [CHEAPEST["messages"]]
    with open_split(partition.split) as files:
        spans = spans_of(files, partition.task, wanted)
        unread: list[CorruptError] = []
        damaged: list[CorruptError] = []
        on_body, on_damage = (_fail, _fail) if fails_on_damage else (unread.append, damaged.append)
        for batch in split_batches(
            files, partition.split, names, wanted, Events(damage=on_damage), on_body, spans=spans
        ):
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield fitted(labelled(arrays, partition.labels, batch.num_rows), arrow_schema)
        # in the executor's log: Spark gives a source no way to the driver but an error
        if damaged:
            what = counted(len(damaged), "damaged span was", "damaged spans were")
            _LOG.warning("%s skipped: %s", what, damaged[0])
        if unread:
            what = counted(len(unread), "body does", "bodies do")
            _LOG.warning("%s not unpack and %s as stored: %s", what, "is" if len(unread) == 1 else "are", unread[0])
        check(files)
