"""Messages of a split as record batches: the columns asked for, of the messages that may be wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from rmqctl.pipeline.source.wanted import Wanted
from rmqctl.pipeline.splits.splits import Split, split_columns
from rmqctl.store.columns.batch import Columns, MessageColumns
from rmqctl.store.scan.batches import BatchMaker
from rmqctl.store.scan.schema import needed
from rmqctl.store.store_files import StoreFiles

# as rmqctl.store.scan reads: bodies stay in the window that they were read into until a batch is made of them
_WINDOW = 4 * 1024 * 1024
_ROWS = 16384


def message_batches(
    files: StoreFiles,
    split: Split,
    columns: Sequence[str],
    wanted: Wanted,
    stopped: Callable[[], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches with the types of `rmqctl.store.scan.schema`, none of them empty, in the order of the log.

    `columns` as of `schema.COLUMNS`. Damaged spans hold no message and are passed.
    """
    maker = BatchMaker(columns, views=False)
    # a walk without any columns has no row numbers to choose by
    groups = needed(columns) | wanted.needs or Columns.HEAD
    records = split_columns(files, split, columns=groups, stopped=stopped, window=_WINDOW, rows=_ROWS)
    for record in records:
        if isinstance(record, MessageColumns):
            yield from maker.batches(record.take(wanted.rows(record)))
