"""The walk over the commitlog that yields runs of messages as columns."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.store.columns import plain
from rmqctl.store.columns.batch import ColumnRecord, Columns, MessageColumns
from rmqctl.store.columns.compiled_walk import FileWalk, Request
from rmqctl.store.columns.engine import WalkEngine, engine
from rmqctl.store.columns.topics import TopicIds
from rmqctl.store.commitlog.walk import Progress, Record, walk_file, walk_files
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

WINDOW = 1 << 20
ROWS = 16384


def walk_columns(
    log: MappedFileQueue,
    begin: int = 0,
    end: int | None = None,
    *,
    crc_from: int = 0,
    columns: Columns = Columns.DISPATCH,
    topics: TopicIds | None = None,
    progress: Progress | None = None,
    window: int = WINDOW,
    rows: int = ROWS,
) -> Iterator[ColumnRecord]:
    """What `walk` yields, in the same order, with runs of messages as `MessageColumns` of up to `rows` messages.

    Records that start at or behind physical offset `end` are left out. `topics` numbers the topics; one table may
    serve several walks. `window`: bytes that are read at once. Everything else, errors too, is as in `walk`.
    """
    topics = topics if topics is not None else TopicIds()

    request = Request(log, topics, columns, crc_from, end, progress, window, rows)
    return walk_request(request, begin)


def walk_request(request: Request, begin: int) -> Iterator[ColumnRecord]:
    """The walk over all files, on the highest rung there is."""
    used = engine()

    def one_file(file: MappedFile, start: int, stop: int) -> Iterator[ColumnRecord]:
        return file_records(used, request, file, start, stop)

    for record in walk_files(request.log, begin, one_file):
        if request.limit is not None and not isinstance(record, MessageColumns):
            begins = record.physical_offset
            if begins >= request.limit:
                return
        yield record


def file_records(used: WalkEngine, request: Request, file: MappedFile, begin: int, end: int) -> Iterator[ColumnRecord]:
    """Records of the bytes [begin, end) of one file."""
    if used.walk_window is not None:
        return FileWalk(used, request, file).records(begin, end)
    crc_from = request.crc_from - file.start_offset
    found = walk_file(file, request.search(file, end), begin, end, crc_from, request.progress)
    return plain.batches(_before(found, request), request.log, request.topics, request.asked, request.rows)


def _before(records: Iterator[Record], request: Request) -> Iterator[Record]:
    for record in records:
        if request.limit is not None and record.physical_offset >= request.limit:
            return
        if request.stopped is not None:
            request.stopped()
        yield record
