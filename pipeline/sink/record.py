"""What a store remembers of writes: the one that has begun, and the last micro-batch of each query. It lies in the
store's config folder, so that it is copied and moved with the store; brokers do not read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_file
from rmqctl.store.files.reading import read_small_file

FILE = "rmqctlWrites.json"
_FORMAT = 1
_LARGEST = 16 * 1024 * 1024


class MicroBatch(NamedTuple):
    """Which micro-batch of which query a write is."""

    query: str
    batch_id: int


class StoredBatch(NamedTuple):
    """The last micro-batch of a query: its messages stand at physical offsets [begin, end), with others perhaps."""

    batch_id: int
    begin: int
    end: int


class BegunWrite(NamedTuple):
    """A write that has begun, and has not ended unless its process is still at it.

    `process`: its id, which is in the store's `abort` while it writes. `lock_time`: when `lock` was changed last, ns
    since 1970. `begin`: where the log ended before; None while the store is being opened, and nothing was put. `end`:
    where it ended when all was put and on disk; None before. `topics`: how many queues each needs. `batch`: of streams.
    """

    process: int
    lock_time: int | None = None
    begin: int | None = None
    end: int | None = None
    topics: Mapping[str, int] = {}
    batch: MicroBatch | None = None


class WriteRecord(NamedTuple):
    """All of it. `queries`: by name."""

    begun: BegunWrite | None = None
    queries: Mapping[str, StoredBatch] = {}

    def ended(self) -> WriteRecord:
        """The record once the write that has begun is complete: nothing of it stays but that of a stream."""
        begun = self.begun
        if begun is None or begun.batch is None or begun.begin is None or begun.end is None:
            return self._replace(begun=None)
        stored = StoredBatch(begun.batch.batch_id, begun.begin, begun.end)
        return WriteRecord(None, {**self.queries, begun.batch.query: stored})


def record_path(layout: StoreLayout) -> Path:
    """Where the record of a store lies."""
    return layout.config / FILE


def read_record(layout: StoreLayout) -> WriteRecord:
    """The record of a store; an empty one without the file. CorruptError, UnreadableError."""
    path = record_path(layout)
    try:
        content = json.loads(read_small_file(path, _LARGEST))
    except FileNotFoundError:
        return WriteRecord()
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise _damaged(path)
    try:
        queries = {name: StoredBatch(**one) for name, one in content["queries"].items()}
        return WriteRecord(_begun(content["begun"]), queries)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path) from error


def _begun(content: dict[str, Any] | None) -> BegunWrite | None:
    if content is None:
        return None
    batch = content["batch"]
    return BegunWrite(**{**content, "batch": None if batch is None else MicroBatch(**batch)})


def _damaged(path: Path) -> CorruptError:
    return CorruptError(
        "is no record of writes from Spark",
        file=path,
        hint="see with `rmqctl check` that the store is whole; then remove the file: a micro-batch that comes again "
        "will be stored again",
    )


def write_record(layout: StoreLayout, record: WriteRecord) -> None:
    """Replace the record; it is on disk when this returns. WriteFailedError."""
    begun = record.begun
    content = {
        "format": _FORMAT,
        "begun": None
        if begun is None
        else {**begun._asdict(), "batch": None if begun.batch is None else begun.batch._asdict()},
        "queries": {name: stored._asdict() for name, stored in record.queries.items()},
    }
    io.make_directories(layout.config, flushed=True)
    io.write_whole(record_path(layout), (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii"))


def end_write(layout: StoreLayout, record: WriteRecord) -> WriteRecord:
    """The write that has begun is complete; the record that is on disk then. WriteFailedError."""
    return _settle(layout, record.ended())


def forget_write(layout: StoreLayout, record: WriteRecord) -> WriteRecord:
    """The write that has begun has left nothing; the record that is on disk then. WriteFailedError."""
    return _settle(layout, record._replace(begun=None))


def _settle(layout: StoreLayout, record: WriteRecord) -> WriteRecord:
    path = record_path(layout)
    if record.queries:
        write_record(layout, record)
    elif is_file(path):  # a record that says nothing
        io.remove(path)
        io.flush_directory(path.parent)
    return record
