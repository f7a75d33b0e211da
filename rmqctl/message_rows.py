"""Messages to be stored, from the rows of a Parquet or Arrow file: the columns that `export` writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from formats.errors import UsageError
from formats.message import Message
from rmqctl.message_input import message_from_record
from rmqctl.message_source import PARQUET_MAGIC
from store.scan.schema import COLUMNS, require_pyarrow

# Rows that become Python objects at a time.
_ROWS = 1024
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


def messages_of_table(source: IO[bytes], as_stored: bool) -> Iterator[tuple[int, int, Message | UsageError]]:
    """(row number from 1, bytes that were read for it, the message or what is wrong with it) of every row.

    `source` must be seekable. UsageError for a file that cannot be read or has columns of other names or types;
    UnsupportedError without pyarrow.
    """
    require_pyarrow()
    import pyarrow as pa

    number = 0
    try:
        for batch in _batches(source):
            size = batch.nbytes // max(1, batch.num_rows)
            for record in _plain(batch).to_pylist():
                number += 1
                yield number, size, _message(record, as_stored)
    except (pa.ArrowException, OSError) as error:
        first = str(error).partition("\n")[0]
        raise UsageError(f"the file cannot be read as Parquet or Arrow behind row {number}: {first}") from error


def _batches(source: IO[bytes]) -> Iterator[Any]:
    import pyarrow as pa

    if source.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC:
        from pyarrow import parquet

        file = parquet.ParquetFile(source)
        names = _checked(file.schema_arrow)
        yield from file.iter_batches(batch_size=_ROWS, columns=names)
        return
    reader = pa.ipc.open_file(source)
    names = _checked(reader.schema)
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index).select(names)
        for begin in range(0, batch.num_rows, _ROWS):
            yield batch.slice(begin, _ROWS)


def _checked(schema: Any) -> list[str]:
    """The columns that count; UsageError where a file is not of ours."""
    for name in schema.names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint="the columns are those that `export` writes")
    for name in _NEEDED:
        if name not in schema.names:
            raise UsageError(f"the file has no column {name!r}", hint="a message needs at least topic and body")
    return [name for name in _FIELDS if name in schema.names]


def _plain(batch: Any) -> Any:
    """The batch with times as integers: no calendar of Python's holds every time that a damaged frame may say."""
    import pyarrow as pa

    arrays, names = list(batch.columns), batch.schema.names
    for place, name in enumerate(names):
        if pa.types.is_timestamp(batch.schema.field(name).type):
            arrays[place] = arrays[place].cast(pa.timestamp("ms", batch.schema.field(name).type.tz)).view(pa.int64())
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _message(row: dict[str, Any], as_stored: bool) -> Message | UsageError:
    try:
        record = {_FIELDS[name]: value for name, value in row.items() if value is not None}
        properties = record.get("properties")
        if isinstance(properties, list):
            record["properties"] = dict(properties)
        body = record.get("body_base64")
        if isinstance(body, str):  # a file of somebody else's, with bodies as texts
            record["body_base64"] = body.encode("utf-8")
        return message_from_record(record, as_stored)
    except UsageError as error:
        return error
    except (TypeError, ValueError) as error:
        return UsageError(f"it is not as `export` writes it: {error}")
