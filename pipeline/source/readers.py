"""How each view is read: its tasks, as plain data, and the batches of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rmqctl.pipeline.source.config_rows import offset_rows, topic_rows
from rmqctl.pipeline.source.fitting import columns_of
from rmqctl.pipeline.source.queue_rows import entry_columns, index_parts, queue_parts, unit_columns
from rmqctl.pipeline.source.tables import TABLES
from rmqctl.store.store_files import StoreFiles

_Arrays = Mapping[str, pa.Array]

_ROWS = 10_000


class TableReader(NamedTuple):
    """`parts`: what tasks are about, each picklable. `batches`: all columns of the view, or those asked for at least,
    of one part; the second argument is a part, the third the columns asked for."""

    parts: Callable[[StoreFiles], Sequence[Any]]
    batches: Callable[[StoreFiles, Any, Sequence[str]], Iterator[_Arrays]]


def _rows(view: str, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[_Arrays]:
    kinds = {name: TABLES[view].columns[name].kind for name in names}
    page: list[Mapping[str, Any]] = []
    for row in rows:
        page.append(row)
        if len(page) >= _ROWS:
            yield columns_of(page, kinds)
            page = []
    if page:
        yield columns_of(page, kinds)


def _finding_rows(files: StoreFiles) -> Iterator[Mapping[str, Any]]:
    from rmqctl.store.check.check import check

    for finding in check(files):
        row = finding.row()
        yield {**row, **{name: None if row[name] is None else str(row[name]) for name in ("expected", "found")}}


def _one_task(files: StoreFiles) -> Sequence[Any]:
    return [None]


READERS: dict[str, TableReader] = {
    "consumequeue": TableReader(queue_parts, lambda files, part, _: unit_columns(files, part)),
    "index_entries": TableReader(index_parts, lambda files, part, _: entry_columns(files, part)),
    "consumer_offsets": TableReader(
        _one_task, lambda files, _, names: _rows("consumer_offsets", offset_rows(files), names)
    ),
    "topics": TableReader(_one_task, lambda files, _, names: _rows("topics", topic_rows(files, names), names)),
    "findings": TableReader(_one_task, lambda files, _, names: _rows("findings", _finding_rows(files), names)),
}
"""Every view but `messages`, which is read by splits of the log."""
