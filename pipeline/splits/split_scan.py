"""A split as record batches: what `rmqctl.store.scan` makes of a whole log, for one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.message import FrameDamage
from rmqctl.pipeline.splits.named import span_columns
from rmqctl.pipeline.splits.splits import Split, split_columns
from rmqctl.store.columns.batch import Columns, MessageColumns
from rmqctl.store.columns.spans import ByteSpan
from rmqctl.store.commitlog.walk import Damage
from rmqctl.store.read.key_query import damage_error
from rmqctl.store.read.selection import changed_error
from rmqctl.store.scan.batches import BatchMaker
from rmqctl.store.scan.scan import SCAN_ROWS, SCAN_WINDOW, Chooser
from rmqctl.store.scan.schema import needed
from rmqctl.store.store_files import StoreFiles


def split_batches(
    files: StoreFiles,
    split: Split,
    names: Sequence[str],
    chooser: Chooser,
    on_damage: Callable[[CorruptError], None] = lambda _: None,
    on_body: Callable[[CorruptError], None] | None = None,
    *,
    views: bool = False,
    spans: Sequence[ByteSpan] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of the split's messages that `chooser` means, none empty, in the log's order, with columns `names` of
    `rmqctl.store.scan.schema`.

    Damaged spans are told to `on_damage` and passed. Bodies that do not unpack are given as stored, and told to
    `on_body`. `views`: see `rmqctl.store.scan.scan.Scan`. `spans`: the only
    ones to read, see `named.span_columns`; None: all is walked.
    """
    maker = BatchMaker(names, views, on_body)
    # a walk without any columns has no row numbers to choose by
    groups = needed(names) | chooser.needs or Columns.HEAD
    if spans is None:
        records = split_columns(files, split, columns=groups, window=SCAN_WINDOW, rows=SCAN_ROWS)
    else:
        records = span_columns(files, split, spans, columns=groups, window=SCAN_WINDOW, rows=SCAN_ROWS)
    for record in records:
        if isinstance(record, Damage):
            on_damage(damage_error(record))
        if not isinstance(record, MessageColumns):
            continue
        try:
            rows = chooser.rows(record)
        except FrameDamage as damage:
            on_damage(changed_error(record, 0, damage))
            continue
        yield from maker.batches(record.take(rows))
