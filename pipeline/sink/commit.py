"""The end of a write: what its tasks have put aside becomes messages of one store, all of it or nothing.

A new store is made beside its name, and gets it when it is complete. What is appended to a store is noted in it before
and afterwards (`record`), so that the next write can tell what a killed one has left (`settle`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rmqctl.formats.errors import NotAStoreError, RefusedError, RmqctlError, StoreInUseError, UsageError
from rmqctl.pipeline.sink.record import BegunWrite, MicroBatch, WriteRecord, end_write, forget_write, write_record
from rmqctl.pipeline.sink.rows import queues_of
from rmqctl.pipeline.sink.settle import is_stored, lock_time, settled, take_back
from rmqctl.pipeline.sink.staging import StagedRows, read_attempt
from rmqctl.pipeline.sink.topics import add_topics, require_topics
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import looks_like_store
from rmqctl.store.files.lock import is_in_use
from rmqctl.store.files.presence import is_directory
from rmqctl.store.message_store import MessageStore
from rmqctl.store.outputs.output_place import check_output_place, is_vacant
from rmqctl.store.outputs.publish import publish
from rmqctl.store.outputs.staging import staged_directory
from rmqctl.store.write.opening.open_for_writing import is_empty_place

_HINT_IN_USE = "stop the broker, or write to a new store"
Note = Callable[[BegunWrite], None]


class Written(NamedTuple):
    """What a write did: so many messages at physical offsets [begin, end); none if it was `stored_before`."""

    messages: int
    begin: int = 0
    end: int = 0
    stored_before: bool = False


def require_target(target: Path, config: StoreConfig, overwrite: bool) -> None:
    """See that a write could end at `target`, before anything is done for it.

    RefusedError for what would be overwritten and for a place among the files of a store, StoreInUseError for a store
    that a broker runs, NotAStoreError for anything else.
    """
    layout = config.layout(target)
    if is_empty_place(layout):
        check_output_place(target)
        return
    if overwrite:
        raise RefusedError(
            "is there already, and nothing is overwritten",
            file=target,
            hint='name a new store, or add to this one with .mode("append")',
        )
    if not looks_like_store(target) and not any(is_directory(directory) for directory in layout.commitlog):
        raise NotAStoreError("is no store, and not empty", file=target, hint="name a new directory, or a store")
    if is_in_use(layout):
        raise StoreInUseError("a broker or another writer has the store open", file=target, hint=_HINT_IN_USE)


def write_staged(
    target: Path,
    config: StoreConfig,
    tasks: Sequence[StagedRows],
    *,
    as_stored: bool = False,
    batch: MicroBatch | None = None,
) -> Written:
    """Put the rows of `tasks` into the store at `target`, by number of task and in the order of their rows.

    `batch`: the micro-batch that this is; one that the store has already is not put again.
    UsageError names task and row of a message that cannot be stored; as of MessageStore.open and put_columns. Whatever
    is raised, the store is as it was, or is so again when the next write begins.
    """
    tasks = sorted(task for task in tasks if task.rows)
    if not tasks:
        return Written(0)
    # it is flushed at the end, as a whole
    config = config._replace(flush_disk_type="ASYNC_FLUSH", transient_store_pool_enable=False)
    if not config.store_path_commit_log and is_vacant(target):
        with staged_directory(target) as staging:
            written = _put(staging, config, tasks, as_stored, lambda begun: None)
            if batch is not None:
                begun = BegunWrite(os.getpid(), None, written.begin, written.end, {}, batch)
                write_record(config.layout(staging), WriteRecord(begun).ended())
            publish(staging, target)
        return written
    with _one_write_at_a_time(target):
        return _append(target, config, tasks, as_stored, batch)


@contextlib.contextmanager
def _one_write_at_a_time(root: Path) -> Iterator[None]:
    """The record of a store is for one write at a time; the store's own lock begins later. StoreInUseError."""
    io.make_directories(root, flushed=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreInUseError(
                "another write from Spark is about to end here", file=root, hint="run this one again when it has"
            ) from error
        except OSError:  # a file system without such locks: the store's own has to do
            pass
        yield
    finally:
        os.close(descriptor)


def _append(
    root: Path, config: StoreConfig, tasks: Sequence[StagedRows], as_stored: bool, batch: MicroBatch | None
) -> Written:
    layout = config.layout(root)
    record = settled(root, config)
    if batch is not None and is_stored(record, batch, root, config):
        return Written(0, stored_before=True)
    noted = BegunWrite(os.getpid(), batch=batch)

    def note(begun: BegunWrite) -> None:
        nonlocal noted
        noted = begun._replace(batch=batch)
        write_record(layout, record._replace(begun=noted))

    note(noted)
    try:
        written = _put(root, config, tasks, as_stored, note)
    except BaseException:
        # what this cannot do now, the next write does
        with contextlib.suppress(RmqctlError):
            if noted.begin is None:
                settled(root, config)
            else:
                if noted.end is not None:
                    note(noted._replace(end=None))
                take_back(root, config, noted.begin)
                forget_write(layout, record)
        raise
    end_write(layout, record._replace(begun=noted))
    return written


def _put(root: Path, config: StoreConfig, tasks: Sequence[StagedRows], as_stored: bool, note: Note) -> Written:
    """Open the store, look at all rows, put all rows. `note` keeps how far it is, on disk."""
    layout = config.layout(root)
    with MessageStore.open(root, "rw", config, create=True, allocate_ahead=False) as store:
        require_topics(layout)
        topics = _check(store, tasks, as_stored)
        known = {(queue.topic, queue.queue_id) for queue in store.files.queues.all()}
        begin = store.files.log.max_offset
        begun = BegunWrite(os.getpid(), lock_time(layout), begin)
        note(begun)
        messages = 0
        for task, row, rows in _staged(tasks):
            result = store.put_columns(rows, as_stored=as_stored)
            for number, answer in result.refused.items():
                answer.raise_failure(f"{_place(task, row + number)}: ")
                raise UsageError(f"{_place(task, row + number)}: {answer.status}: {answer.detail}")
            messages += result.stored
        store.flush()
        end = store.files.log.max_offset
        # what is delayed lies in another topic now
        for queue in store.files.queues.all():
            if (queue.topic, queue.queue_id) not in known:
                topics[queue.topic] = max(topics.get(queue.topic, 0), queue.queue_id + 1)
        note(begun._replace(end=end, topics=topics))
        add_topics(store.files, topics)
    return Written(messages, begin, end)


def _check(store: MessageStore, tasks: Sequence[StagedRows], as_stored: bool) -> dict[str, int]:
    """How many queues each topic needs; UsageError for the first row that would be refused."""
    topics: dict[str, int] = {}
    for task, row, rows in _staged(tasks):
        try:
            refused = store.check_columns(rows, as_stored=as_stored)
        except UsageError as error:
            where = f"task {task.partition}, rows {row} to {row + rows.num_rows - 1}"
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
        for number, why in refused.items():
            raise UsageError(f"{_place(task, row + number)}: {why}", hint="nothing was written")
        for topic, count in queues_of(rows).items():
            topics[topic] = max(topics.get(topic, 0), count)
    return topics


def _staged(tasks: Sequence[StagedRows]) -> Iterator[tuple[StagedRows, int, pa.RecordBatch]]:
    """What the tasks have put aside, in order, with the number of the first row of each batch in its task."""
    for task in tasks:
        row = 0
        for rows in read_attempt(task):
            yield task, row, rows
            row += rows.num_rows


def _place(task: StagedRows, row: int) -> str:
    return f"task {task.partition}, row {row}"
