"""What a write that was killed has left in a store: taken back as a whole, or brought to its end."""

from __future__ import annotations

from pathlib import Path

from rmqctl.formats.errors import RefusedError
from rmqctl.pipeline.sink.record import BegunWrite, MicroBatch, WriteRecord, end_write, forget_write, read_record
from rmqctl.pipeline.sink.topics import add_topics
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import is_file
from rmqctl.store.files.reading import read_small_file
from rmqctl.store.recover.recover import recover
from rmqctl.store.recover.truncate import truncate
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.tail import end_of_messages

_PROCESS_DIGITS = 32


def settled(root: Path, config: StoreConfig) -> WriteRecord:
    """The record of the store at `root`, of which no write is unfinished any more.

    All that a write puts stands behind where the log ended before, so cutting the log there takes it back; where all of
    it was on disk already, it only lacked its end. RefusedError where something else used the store meanwhile, whose
    messages may stand there too; and as `rmqctl truncate` and `rmqctl recover`.
    """
    layout = config.layout(root)
    record = read_record(layout)
    begun = record.begun
    if begun is None:
        return record
    if begun.end is not None:
        return _brought_to_its_end(root, config, record, begun)
    if _is_as_left(layout, begun):
        take_back(root, config, begun.begin)
    elif begun.begin is not None and log_end(root, config, begun.begin) > begun.begin:
        raise RefusedError(
            "a write from Spark was killed, and the store was recovered or used since: a part of what was to be "
            "written stands behind this offset, perhaps with other messages behind it",
            file=root,
            physical_offset=begun.begin,
            hint=f"`rmqctl truncate --at {begun.begin}` cuts off all that stands behind it",
        )
    return forget_write(layout, record)


def take_back(root: Path, config: StoreConfig, begin: int | None) -> None:
    """End the log at `begin`, where a write began that has not ended; queues, index and checkpoint follow, and the
    store counts as closed cleanly. None: nothing was put. Errors as of `rmqctl truncate` and `rmqctl recover`."""
    with StoreFiles(root, config) as files:
        if begin is not None and files.log.files:
            truncate(files, begin, keeps=False)
        elif files.has_abort():
            recover(files, keeps=False)


def log_end(root: Path, config: StoreConfig, begin: int) -> int:
    """Where the messages of the store at `root` end, physical; `begin` if there is none behind it."""
    with StoreFiles(root, config) as files:
        return end_of_messages(files.log, begin)


def is_stored(record: WriteRecord, batch: MicroBatch, root: Path, config: StoreConfig) -> bool:
    """Whether the store has this micro-batch already. RefusedError where that cannot be: an earlier one than the last,
    or the last one where its messages are not all there any more."""
    stored = record.queries.get(batch.query)
    if stored is None or batch.batch_id > stored.batch_id:
        return False
    if batch.batch_id < stored.batch_id:
        raise RefusedError(
            f"the last micro-batch that query {batch.query!r} has stored here is {stored.batch_id}, and now comes "
            f"{batch.batch_id}: its checkpoint was set back, or belongs to another query",
            file=root,
            hint='give .option("query", NAME) with a new name to store it all the same',
        )
    end = log_end(root, config, min(stored.begin, stored.end))
    if end < stored.end:
        raise RefusedError(
            f"micro-batch {stored.batch_id} of query {batch.query!r} was stored up to {stored.end}, but the log was "
            f"cut back to {end}",
            file=root,
            hint='give .option("query", NAME) with a new name to store it once more',
        )
    return True


def _brought_to_its_end(root: Path, config: StoreConfig, record: WriteRecord, begun: BegunWrite) -> WriteRecord:
    layout = config.layout(root)
    begin, end = begun.begin or 0, begun.end or 0
    found = log_end(root, config, begin)
    if found < end:
        raise RefusedError(
            f"a write from Spark was on disk up to {end}, but the log ends at {found} now: it was cut back",
            file=root,
            physical_offset=begin,
            hint=f"`rmqctl truncate --at {begin}` takes back all of that write" if found > begin else None,
        )
    if _is_as_left(layout, begun):
        with StoreFiles(root, config) as files:
            recover(files, keeps=False)
    with StoreFiles(root, config) as files:
        add_topics(files, begun.topics)
    return end_write(layout, record)


def _is_as_left(layout: StoreLayout, begun: BegunWrite) -> bool:
    """Whether nobody has used the store since the write was killed: its `abort` is that of the write, and no broker has
    started, which writes into `lock` (DefaultMessageStore#start)."""
    if not is_file(layout.abort) or read_small_file(layout.abort, _PROCESS_DIGITS).strip() != b"%d" % begun.process:
        return False
    return begun.lock_time is None or lock_time(layout) == begun.lock_time


def lock_time(layout: StoreLayout) -> int | None:
    """When the store's `lock` was changed last, ns since 1970; None without it."""
    return layout.lock.stat().st_mtime_ns if is_file(layout.lock) else None
