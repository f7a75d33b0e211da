"""How large new queue and index files are to be where neither a file nor a configuration says it: the one place that
decides or tells, before a verb makes any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.store.store_files import StoreFiles


def decide_sizes(files: StoreFiles, queue_file_size: int | None, *, queues: bool = True) -> bool:
    """Take the size of queue files that was given, or say which one is assumed, where `queues` may be made anew.

    Returns whether the size of index files is assumed as well: `tell_index_size` says so where some were made.
    RefusedError where the commitlog shows that this broker has sizes of its own: with queue files of another length
    than its mappedFileSizeConsumeQueue it does not start (MappedFileQueue#doLoad).
    """
    from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
    from rmqctl.store.queues.queue_table import has_rocksdb_queues

    if has_rocksdb_queues(files.layout):
        return False
    if queue_file_size is not None:
        _take(files, queue_file_size)
    keep_interrupted_sizes(files)
    if files.log.last_with_data() is None:
        return False
    if queues and files.queues.is_size_assumed:
        _tell_queues(files)
    return files.index_to_mend.is_geometry_assumed


def _take(files: StoreFiles, queue_file_size: int) -> None:
    from rmqctl.formats.errors import UsageError

    if files.config.mapped_file_size_consume_queue not in (None, queue_file_size):
        raise UsageError("--queue-file-size and mappedFileSizeConsumeQueue of -c differ", hint="leave out one of them")
    files.take_sizes({"mapped_file_size_consume_queue": queue_file_size})


def _tell_queues(files: StoreFiles) -> None:
    from rmqctl.formats.errors import RefusedError
    from rmqctl.output.output import talk
    from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE
    from rmqctl.store.write.opening.open_for_writing import DEFAULT_COMMITLOG_FILE_SIZE

    if files.log.file_size != DEFAULT_COMMITLOG_FILE_SIZE:
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
