"""How large new queue and index files are to be where neither a file nor a configuration says it: the one place that
decides or tells, before a verb makes any."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.formats.errors import RefusedError
    from rmqctl.store.store_files import StoreFiles

_FIRST_MESSAGES = 1000


@dataclass(frozen=True)
class NewFiles:
    """Which files a verb may make. `is_asked_for`: the index by name, even where keys are in a RocksDB alone."""

    queues: bool = True
    index: bool = True
    is_asked_for: bool = False


_ALL = NewFiles()


def decide_sizes(
    files: StoreFiles,
    queue_file_size: int | None,
    index_size: tuple[int, int] | None = None,
    makes: NewFiles = _ALL,
) -> bool:
    """Take the sizes of new files that were given, or say which are assumed, where a verb `makes` any.

    Returns whether the size of index files is assumed: `tell_index_size` says so where some were made.
    RefusedError where the commitlog shows that this broker has sizes of its own: with queue files of another length
    than its mappedFileSizeConsumeQueue it does not start (MappedFileQueue#doLoad), and in index files of other sizes it
    finds nothing.
    """
    from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
    from rmqctl.store.queues.queue_table import has_rocksdb_queues

    if index_size is not None:
        _take_index(files, index_size)
    has_queue_files = not has_rocksdb_queues(files.layout)
    if queue_file_size is not None and has_queue_files:
        _take(files, queue_file_size)
    keep_interrupted_sizes(files)
    if files.log.last_with_data() is None:
        return False
    if makes.queues and has_queue_files and files.queues.is_size_assumed:
        _tell_queues(files)
    if not files.index_to_mend.is_geometry_assumed:
        return False
    if makes.index and (makes.is_asked_for or files.makes_index_files) and _has_own_sizes(files) and _has_keys(files):
        raise _unknown_index_size(files)
    return True


def _take_index(files: StoreFiles, index_size: tuple[int, int]) -> None:
    from rmqctl.formats.errors import UsageError

    for name, size, key in zip(
        ("max_hash_slot_num", "max_index_num"), index_size, ("maxHashSlotNum", "maxIndexNum"), strict=True
    ):
        if getattr(files.config, name) not in (None, size):
            raise UsageError(f"--index-size and {key} of -c differ", hint="leave out one of them")
        files.take_sizes({name: size})


def _has_own_sizes(files: StoreFiles) -> bool:
    """Return whether the commitlog shows that the broker does not use RocketMQ's default sizes."""
    from rmqctl.store.write.opening.open_for_writing import DEFAULT_COMMITLOG_FILE_SIZE

    return files.log.file_size != DEFAULT_COMMITLOG_FILE_SIZE


def _has_keys(files: StoreFiles) -> bool:
    """Return whether one of the first messages has a key: an index would be made of it."""
    from rmqctl.formats.message import StoredMessage
    from rmqctl.store.commitlog.walk import walk
    from rmqctl.store.queues.dispatch import index_keys

    messages = (one for one in walk(files.log) if isinstance(one, StoredMessage))
    return any(index_keys(message) for message in islice(messages, _FIRST_MESSAGES))


def _unknown_index_size(files: StoreFiles) -> RefusedError:
    from rmqctl.formats.errors import RefusedError

    return RefusedError(
        "no index file is left that shows how many slots and entries they have, and this broker does not use the "
        f"default sizes: its commitlog files have {files.log.file_size} bytes",
        file=files.layout.index,
        hint="name its broker.conf with -c, or the sizes: `--index-size SLOTS,ENTRIES` (maxHashSlotNum, maxIndexNum), "
        "`--index-size default` if they are RocketMQ's own; messageIndexEnable=false in -c makes no index",
    )


def _take(files: StoreFiles, queue_file_size: int) -> None:
    from rmqctl.formats.errors import UsageError

    if files.config.mapped_file_size_consume_queue not in (None, queue_file_size):
        raise UsageError("--queue-file-size and mappedFileSizeConsumeQueue of -c differ", hint="leave out one of them")
    files.take_sizes({"mapped_file_size_consume_queue": queue_file_size})


def _tell_queues(files: StoreFiles) -> None:
    from rmqctl.formats.errors import RefusedError
    from rmqctl.output.output import talk
    from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE

    if _has_own_sizes(files):
        raise RefusedError(
            "no consume queue file is left that shows how large they are, and this broker does not use the default "
            f"sizes: its commitlog files have {files.log.file_size} bytes",
            file=files.layout.consumequeue,
            hint="name its broker.conf with -c, or the size: `--queue-file-size BYTES` (mappedFileSizeConsumeQueue), "
            "`--queue-file-size default` if it is RocketMQ's own",
        )
    talk(
        f"no consume queue file is left that shows how large they are: {DEFAULT_FILE_SIZE} bytes are assumed, "
        "RocketMQ's default; -c broker.conf (mappedFileSizeConsumeQueue) or --queue-file-size says it otherwise"
    )


def tell_index_size(is_assumed: bool, made: int, *, dry_run: bool) -> None:
    """Say of index files that were `made`, or would be, how large they are where nothing told it."""
    from rmqctl.output.output import talk
    from rmqctl.store.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS

    if is_assumed and made:
        talk(
            f"no index file was left that shows how large they are: the new ones {'would have' if dry_run else 'have'} "
            f"{DEFAULT_SLOTS} slots and {DEFAULT_ENTRIES} entries, RocketMQ's default; -c broker.conf (maxHashSlotNum, "
            "maxIndexNum) says it otherwise"
        )
