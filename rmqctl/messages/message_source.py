"""Input of `append --from`: JSON Lines, or a Parquet or Arrow file, recognised by the first bytes."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.messages.input import ARROW_MAGIC, NAMED_BY, PARQUET_MAGIC, MessagePiece, identified, message_from_record
from rmqctl.messages.json import JSON_ORDER
from rmqctl.store.scan.schema import COLUMNS, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.store.log.columns import Flags


_SPOOL_IN_MEMORY = 64 * 1024 * 1024
# more than the longest line of names has, and than any magic number
_LOOKED_AT = 1024


class MessageSource:
    """Messages in pieces, as often as asked for if the stream can go back to where it began.

    `item`: what a message is called when something is wrong with it, `line` or `row`. `size`: bytes in all, None if
    that is not known beforehand.
    """

    def __init__(self, stream: IO[bytes], is_table: bool, unique_keys: bool) -> None:
        """`unique_keys`: what describes a new message gets a unique id."""
        self._stream = stream
        self._is_table = is_table
        self._unique_keys = unique_keys
        self._start = stream.tell() if stream.seekable() else None
        self.item = "row" if is_table else "line"
        self.size = None if is_table else _size_of(stream)

    def pieces(self, as_stored: bool) -> Iterator[MessagePiece]:
        """The pieces from the start on. UsageError for what cannot be read on.

        With `as_stored` store time and host are needed too.
        """
        if self._start is not None:
            self._stream.seek(self._start)
        if self._is_table:
            pieces = pieces_of_table(self._stream, as_stored)
        else:
            from rmqctl.messages.line_pieces import pieces_of_lines

            pieces = pieces_of_lines(self._stream, as_stored, self._unique_keys)
        if not self._unique_keys:
            return pieces
        from rmqctl.network.unique_ids import UniqueIds

        return identified(pieces, UniqueIds())


@contextlib.contextmanager
def message_source(stream: IO[bytes], once: bool, unique_keys: bool) -> Iterator[MessageSource]:
    """The messages of `stream`. Unless it is read only `once`, a stream that cannot go back is copied first.

    UsageError for CSV.
    """
    beginning = _beginning(stream)
    if _is_csv(beginning, stream):
        raise UsageError(
            "it is CSV, which is not read: whether a field is a text, null or a list is not to be seen in it",
            hint="--from takes JSON Lines, Parquet and Arrow, and `rmqctl export` writes each of them",
        )
    is_table = beginning.startswith((PARQUET_MAGIC, ARROW_MAGIC))
    if stream.seekable() or (once and not is_table):
        yield MessageSource(stream, is_table, unique_keys)
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY) as spool:
        while chunk := stream.read(1 << 20):
            spool.write(chunk)
        spool.seek(0)
        yield MessageSource(spool, is_table, unique_keys)


def _beginning(stream: IO[bytes]) -> bytes:
    """What a stream begins with, as far as it can be looked at and still be read."""
    if stream.seekable():
        start = stream.tell()
        beginning = stream.read(_LOOKED_AT)
        stream.seek(start)
        return beginning
    return bytes(stream.peek(_LOOKED_AT)) if hasattr(stream, "peek") else b""


def _is_csv(beginning: bytes, stream: IO[bytes]) -> bool:
    """Whether the first line names fields of a message, topic or body among them, separated by commas; or the file's
    name says so and no JSON object begins there."""
    if str(getattr(stream, "name", "")).lower().endswith(".csv") and not beginning.lstrip().startswith(b"{"):
        return True
    names = beginning.partition(b"\n")[0].decode("ascii", "replace").removeprefix("\ufeff").strip().split(",")
    known = {name.strip().strip('"') for name in names} & set(JSON_ORDER)
    return len(known) == len(names) and not known.isdisjoint(("topic", "body", "body_base64"))


def _size_of(stream: IO[bytes]) -> int | None:
    try:
        return Path(stream.name).stat().st_size if stream is not sys.stdin.buffer else None
    except (OSError, AttributeError, TypeError):
        return None


# Pieces of messages to be stored, from a Parquet or Arrow file: the columns that `export` writes.

# Rows and bytes of a piece, about; and rows that become Python objects at a time.
_MOST_ROWS = 16384
_BYTES = 8 * 1024 * 1024
_ROWS = 1024
# Rows that are read at a time where any of them may hold what is written once for many; their bytes at most, about.
_LEAST_ROWS = 256
_UNPACKED = 128 * 1024 * 1024
# Encodings of Parquet that write once what several rows have.
_SHARED = ("RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BYTE_ARRAY")
_NEEDED = ("topic", "body")
# What the message is made of, and under which name message_from_record knows it; bytes there are taken as they are.
_FIELDS = {
    "topic": "topic",
    "queue_id": "queue_id",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "properties": "properties",
    "stored_properties": "properties_base64",
    "tags": "tags",
    "keys": "keys",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offset",
    "born_timestamp": "born_timestamp",
    "born_host": "born_host",
    "store_timestamp": "store_timestamp",
    "store_host": "store_host",
    "body": "body_base64",
    "body_error": "body_error",
    "stored_body": "stored_body_base64",
}


def pieces_of_table(source: IO[bytes], as_stored: bool) -> Iterator[MessagePiece]:
    """The rows in pieces: columns that can be stored as they are, or messages and what is wrong with the others.

    `source` must be seekable. UsageError for a file that cannot be read or has columns of other names; UnsupportedError
    without pyarrow.
    """
    require_pyarrow()
    import pyarrow as pa

    number = 1
    try:
        for read in _merged(_plain_batches(_batches(source))):
            numbers = range(number, number + read.num_rows)
            new = _are_new(read)
            batch = read.select([name for name in read.schema.names if name in _FIELDS])
            plain = functools.partial(_as_messages, batch, numbers, new, as_stored)
            number += batch.num_rows
            lacking = as_stored and _lacks_store_times(batch)
            yield plain() if lacking else MessagePiece(numbers, batch.nbytes, batch, {}, plain, new)
    # a ValueError for names of columns that are not UTF-8, both for ids that are times or dates
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        first = str(error).partition("\n")[0]
        raise UsageError(f"the file cannot be read as Parquet or Arrow behind row {number - 1}: {first}") from error


def _are_new(batch: pa.RecordBatch) -> Flags:
    """By row what `message_input.is_new` says."""
    import numpy as np

    new = np.ones(batch.num_rows, np.bool_)
    for name in NAMED_BY:
        if name in batch.schema.names and batch.column(name).null_count < batch.num_rows:
            new &= ~np.fromiter(map(bool, batch.column(name).to_pylist()), np.bool_, batch.num_rows)
    return new


def _as_messages(batch: pa.RecordBatch, all_numbers: Sequence[int], all_new: Flags, as_stored: bool) -> MessagePiece:
    """Row by row: the plain way, which can say what is wrong with which row."""
    numbers: list[int] = []
    messages: list[Message] = []
    errors: dict[int, str] = {}
    records = (record for begin in range(0, batch.num_rows, _ROWS) for record in _records(batch.slice(begin, _ROWS)))
    new: list[bool] = []
    for number, is_new, record in zip(all_numbers, all_new.tolist(), records, strict=True):
        try:
            if isinstance(record, UsageError):
                raise record
            messages.append(_message(record, as_stored))
            numbers.append(number)
            new.append(is_new)
        except UsageError as error:
            errors[number] = error.message
    return MessagePiece(numbers, batch.nbytes, messages, errors, new=new)


def _lacks_store_times(batch: pa.RecordBatch) -> bool:
    names = batch.schema.names
    return any(name not in names or batch.column(name).null_count for name in ("store_timestamp", "store_host"))


def _batches(source: IO[bytes]) -> Iterator[Any]:
    is_parquet = source.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    with _opened_by_arrow(source) as opened:
        yield from _batches_of_parquet(opened) if is_parquet else _batches_of_arrow(opened)


@contextlib.contextmanager
def _opened_by_arrow(source: IO[bytes]) -> Iterator[pa.NativeFile]:
    """The same bytes as a file of Arrow's own.

    A thread of Arrow's lets go of what it has read a moment after the rows, or what is wrong with them, are there. Were
    that a file of Python's and the process at its end, Python would end the thread, and that the process with SIGABRT.
    """
    import pyarrow as pa

    with contextlib.ExitStack() as opened:
        try:
            file = pa.OSFile(f"/proc/self/fd/{source.fileno()}")
        except OSError:  # bytes in memory; or a file that was handed to us open, and that we may not open
            copy = opened.enter_context(tempfile.TemporaryFile())
            source.seek(0)
            shutil.copyfileobj(source, copy)
            copy.flush()
            file = pa.OSFile(f"/proc/self/fd/{copy.fileno()}")
        yield opened.enter_context(file)


def _batches_of_parquet(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    file = parquet.ParquetFile(source)
    names = _checked(file.schema_arrow)
    is_wanted = [path.partition(".")[0] in names for path in _paths(file)]
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        if not group.num_rows:
            continue
        # Reading a row tells of a damaged description of a column; asking for the description ends the process.
        next(file.iter_batches(batch_size=1, row_groups=[index], columns=names), None)
        rows = _rows_at_a_time(group, is_wanted)
        for batch in file.iter_batches(batch_size=rows, row_groups=[index], columns=names):
            # Parquet's texts are whatever bytes they are
            batch.validate(full=True)
            yield batch


def _batches_of_arrow(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    reader = pa.ipc.open_file(source)
    names = _checked(reader.schema)
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index).select(names)
        # Arrow trusts the offsets of a file, and would read wherever a damaged one says
        batch.validate(full=True)
        rows = max(1, min(_MOST_ROWS, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for begin in range(0, batch.num_rows, rows):
            yield batch.slice(begin, rows)


def _plain_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows without dictionaries, few at a time where a dictionary's values are long."""
    import pyarrow as pa

    for batch in batches:
        shared = [place for place, one in enumerate(batch.schema) if pa.types.is_dictionary(one.type)]
        if not shared:
            yield batch
            continue
        longest = sum(_longest(batch.column(place).dictionary) for place in shared)
        rows = max(1, min(_MOST_ROWS, _BYTES // max(1, longest)))
        for begin in range(0, batch.num_rows, rows):
            columns = list(batch.slice(begin, rows).columns)
            for place in shared:
                columns[place] = columns[place].dictionary_decode()
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _longest(values: Any) -> int:
    """Bytes of the longest of some texts; of anything else all there are."""
    import pyarrow as pa
    from pyarrow import compute

    kind = values.type
    is_text = any(is_it(kind) for is_it in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string))
    return int(compute.max(compute.binary_length(values)).as_py() or 0) if is_text else int(values.nbytes)


def _merged(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows in batches of about _BYTES, as far as they were smaller."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > _MOST_ROWS or size + batch.nbytes > _BYTES):
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if held:
        yield _joined(held)


def _joined(batches: list[Any]) -> Any:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _paths(file: Any) -> list[str]:
    """Return the place of each column in the schema of a Parquet file."""
    schema = file.metadata.schema
    return [schema.column(place).path for place in range(len(schema))]


def _rows_at_a_time(group: Any, is_wanted: list[bool]) -> int:
    """As many rows of a row group as have about _BYTES; fewer where a few bytes of a column may mean many in each row,
    of which no statistics tell the size."""
    chunks = [group.column(place) for place, wanted in enumerate(is_wanted) if wanted]
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    rows = min(_MOST_ROWS, _BYTES * group.num_rows // max(1, size))
    shared = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY" and {*_SHARED} & {*chunk.encodings}]
    # a row has no more than all there is, or several times that in a list
    each = sum(chunk.total_uncompressed_size * -(-chunk.num_values // max(1, group.num_rows)) for chunk in shared)
    if rows * each > _UNPACKED:
        rows = min(rows, max(_LEAST_ROWS, _UNPACKED // each))
    return int(max(1, rows))


def _checked(schema: Any) -> list[str]:
    """Return the columns that count; UsageError for a file with other columns."""
    for name in schema.names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint="the columns are those that `export` writes")
        if schema.names.count(name) > 1:
            raise UsageError(f"there are several columns {name!r}", hint="write the file again with one of each name")
    for name in _NEEDED:
        if name not in schema.names:
            raise UsageError(f"the file has no column {name!r}", hint="a message needs at least topic and body")
    return [name for name in (*_FIELDS, *NAMED_BY) if name in schema.names]


def _records(batch: pa.RecordBatch) -> Sequence[dict[str, Any] | UsageError]:
    """The rows; for one with a value that Python has no number or date for, what is wrong with it."""
    import pyarrow as pa

    try:
        return _objects(batch)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            return [UsageError(f"it is not as `export` writes it: {error}")]
    half = batch.num_rows // 2
    return [*_records(batch.slice(0, half)), *_records(batch.slice(half))]


def _objects(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, with times as integers: no calendar of Python's holds every time that a damaged frame may say."""
    import pyarrow as pa

    arrays, names = list(batch.columns), batch.schema.names
    for place, name in enumerate(names):
        if pa.types.is_timestamp(batch.schema.field(name).type):
            arrays[place] = arrays[place].cast(pa.timestamp("ms", batch.schema.field(name).type.tz)).view(pa.int64())
    found: list[dict[str, Any]] = pa.RecordBatch.from_arrays(arrays, names=names).to_pylist()
    return found


def _message(row: dict[str, Any], as_stored: bool) -> Message:
    """UsageError for what is wrong with it."""
    try:
        record = {_FIELDS[name]: value for name, value in row.items() if value is not None}
        properties = record.get("properties")
        if isinstance(properties, list):
            record["properties"] = dict(properties)
        body = record.get("body_base64")
        if isinstance(body, str):  # a file of somebody else's, with bodies as texts
            record["body_base64"] = body.encode("utf-8")
        return message_from_record(record, as_stored)
    except (TypeError, ValueError) as error:
        raise UsageError(f"it is not as `export` writes it: {error}") from error
