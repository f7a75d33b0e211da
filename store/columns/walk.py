"""The walk over the commitlog that yields runs of messages as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from store.columns import plain
from store.columns.batch import Columns, MessageColumns
from store.columns.topics import TopicTable
from store.commitlog.frame_search import FrameSearch
from store.commitlog.walk import Blank, Damage, Empty, Progress, Record, walk_file, walk_files
from store.files.mapped_file import MappedFile
from store.files.mapped_file_queue import MappedFileQueue

ColumnRecord = MessageColumns | Blank | Empty | Damage

WINDOW = 1 << 20
ROWS = 16384


def walk_columns(
    log: MappedFileQueue,
    begin: int = 0,
    end: int | None = None,
    *,
    crc_from: int = 0,
    columns: Columns = Columns.DISPATCH,
    topics: TopicTable | None = None,
    progress: Progress | None = None,
    window: int = WINDOW,
    rows: int = ROWS,
) -> Iterator[ColumnRecord]:
    """What `walk` yields, in the same order, with runs of messages as `MessageColumns` of up to `rows` messages.

    Records that start at or behind physical offset `end` are left out. `topics` numbers the topics; one table may
    serve several walks. `window`: bytes that are read at once. Everything else, errors too, is as in `walk`.
    """
    topics = topics if topics is not None else TopicTable()

    def one_file(file: MappedFile, start: int, stop: int) -> Iterator[ColumnRecord]:
        found = walk_file(file, FrameSearch(file, stop), start, stop, crc_from - file.start_offset, progress)
        return plain.batches(_before(found, end), log, topics, columns, rows)

    for record in walk_files(log, begin, one_file):
        if end is not None and not isinstance(record, MessageColumns) and record.physical_offset >= end:
            return
        yield record


def _before(records: Iterator[Record], end: int | None) -> Iterator[Record]:
    for record in records:
        if end is not None and record.physical_offset >= end:
            return
        yield record
