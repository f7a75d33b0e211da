"""The walk over parts of a file, each of which begins with a frame for certain, and over nothing between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqctl.formats.message import StoredMessage
from rmqctl.store.columns import plain
from rmqctl.store.columns.batch import ColumnRecord, MessageColumns
from rmqctl.store.columns.compiled_walk import FileWalk, Request
from rmqctl.store.columns.engine import WalkEngine
from rmqctl.store.commitlog.walk import Record, walk_file
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.zeros import first_nonzero

ByteSpan = tuple[int, int]
"""[begin, end) in bytes."""

# what follows the last message of a file is a few bytes, or empty, as a rule
_FIRST_WINDOW = 4096


def span_records(
    used: WalkEngine, request: Request, file: MappedFile, spans: Sequence[ByteSpan], end: int
) -> Iterator[ColumnRecord]:
    """Records of a file that start in spans, positions in the file: in order, apart, each one beginning where a record
    of the walk over bytes [0, `end`) of the file begins.

    Where a span holds anything but good messages up to its very end, nobody knows what that means for those behind it:
    from there on everything is walked. The rows of a batch need not follow one another without a gap. `progress` and
    `stopped` of the request are asked by nobody but that walk. Empty space at the end of the file is passed over.
    """
    if spans and spans[-1][1] == end and _is_empty(file, spans[-1][0], end):
        spans = spans[:-1]
    if used.walk_window is None:
        records = _plain_records(request, file, spans, end)
        yield from plain.batches(records, request.log, request.topics, request.asked, request.rows)
        return
    walk = FileWalk(used, request, file)
    for group in _groups(spans, request.window, end):
        begin, stop = group[0][0], group[-1][1]
        if stop - begin <= request.window and stop < end:
            reached = yield from walk.spans(group)
            is_whole = reached == stop
        else:
            reached, is_whole = begin, True
            limited = request._replace(limit=_sooner(file.start_offset + stop, request.limit))
            for record in FileWalk(used, limited, file).records(begin, end, _FIRST_WINDOW if stop == end else None):
                yield record
                reached = record.end - file.start_offset
                is_whole = is_whole and isinstance(record, MessageColumns) and reached <= stop
        if not is_whole:
            yield from FileWalk(used, request, file).records(reached, end, _FIRST_WINDOW)
            return


def _is_empty(file: MappedFile, begin: int, end: int) -> bool:
    """Whether there are only zeros. The walk would look for the last byte that is none, somewhere before."""
    if any(file.read(begin, min(_FIRST_WINDOW, end - begin))):
        return False
    return first_nonzero(file.descriptors, file.path, begin, end) is None


def _sooner(stop: int, limit: int | None) -> int:
    return stop if limit is None else min(stop, limit)


def _groups(spans: Sequence[ByteSpan], window: int, end: int) -> Iterator[Sequence[ByteSpan]]:
    """Neighbours that one window holds; one that is larger, or reaches the end of the file, stands alone."""
    first = 0
    for number, span in enumerate(spans):
        if number > first and (span[1] - spans[first][0] > window or span[1] == end):
            yield spans[first:number]
            first = number
    if first < len(spans):
        yield spans[first:]


def _plain_records(request: Request, file: MappedFile, spans: Sequence[ByteSpan], end: int) -> Iterator[Record]:
    """The same record by record."""
    start, search = file.start_offset, request.search(file, end)
    crc_from = request.crc_from - start
    reached = 0
    for begin, stop in spans:
        reached = begin
        size = _FIRST_WINDOW if stop == end else stop - begin
        for record in walk_file(file, search, begin, end, crc_from, None, min(size, request.window)):
            yield record
            reached = record.end - start
            if not isinstance(record, StoredMessage) or reached >= stop:
                break
        if reached != stop or not isinstance(record, StoredMessage):
            break
    else:
        return
    for record in walk_file(file, search, reached, end, crc_from, None, request.window):
        if request.limit is not None and record.physical_offset >= request.limit:
            return
        yield record
