"""What tasks have written and no store holds yet: a file of record batches for each attempt, in a folder beside the
store, so that a task that runs twice does no harm: only files that a commit names count."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.engine.scratch import attempt
from rmqctl.store.files import io
from rmqctl.store.outputs.outputs import OutputFile
from rmqctl.store.outputs.staging import clear_left_behind, left_behind

_AS_LETTERS = str.maketrans("0123456789", "ghijklmnop")


class StagedRows(NamedTuple):
    """What one task wrote. `path` is None if it had no row; `partition`: the task's number."""

    partition: int
    rows: int
    path: str | None


def staging_folder(target: Path, write: str) -> Path:
    """The folder beside `target` into which the tasks of one write, or of one query, put their rows; made if it is not
    there. What killed drivers left of the same target goes first.

    Its name says which process has to live for it to be at work: the one above ours, which is Spark's driver or serves
    it. What works for Spark in Python ends with each step. WriteFailedError.
    """
    clear_left_behind(target)
    tag = hashlib.sha256(write.encode()).hexdigest()[:16].translate(_AS_LETTERS)
    found = [path for path in target.parent.glob(f".*-{tag}") if path.name.startswith(f".{target.name}.rmqctl-")]
    for path in sorted(set(found) - set(left_behind(target.parent))):
        return path
    folder = target.with_name(f".{target.name}.rmqctl-{os.getppid()}-{tag}")
    io.make_directories(folder)
    return folder


def write_attempt(folder: Path, partition: int, batches: Iterable[pa.RecordBatch]) -> StagedRows:
    """Put batches of one schema into a file of their own. WriteFailedError, also where the folder is gone, because the
    write was given up: no task makes it anew."""
    path = attempt(folder, f"task-{partition}")
    output: OutputFile | None = None
    writer: pa.RecordBatchStreamWriter | None = None
    rows = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if output is None or writer is None:
                output = OutputFile(path)
                writer = pa.ipc.new_stream(output, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if output is None or writer is None:
            return StagedRows(partition, 0, None)
        writer.close()
        output.finish()
    except BaseException:
        if output is not None:
            output.abandon()
            io.remove(path)
        raise
    return StagedRows(partition, rows, str(path))


def read_attempt(staged: StagedRows) -> Iterator[pa.RecordBatch]:
    """The batches that a task put aside, one in memory at a time. UnreadableError if they are not all there."""
    if staged.path is None:
        return
    rows = 0
    try:
        with pa.OSFile(staged.path) as source, pa.ipc.open_stream(source) as batches:
            for batch in batches:
                rows += batch.num_rows
                yield batch
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(f"what a task has written cannot be read: {error}", file=staged.path) from error
    if rows != staged.rows:
        raise UnreadableError(f"has {rows} rows, and its task wrote {staged.rows}", file=staged.path)
