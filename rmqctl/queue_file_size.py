"""How large new consume queue files are to be where neither a file nor a configuration says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.store.store_files import StoreFiles


def decide_queue_file_size(files: StoreFiles, given: int | None) -> None:
    """Take the size that was `given`, or tell which one is assumed where the queues may have to be made anew.

    RefusedError where the commitlog shows that this broker has sizes of its own: with queue files of another length
    than its mappedFileSizeConsumeQueue it does not start (MappedFileQueue#doLoad).
    """
    from rmqctl.formats.errors import RefusedError, UsageError
    from rmqctl.output.output import talk
    from rmqctl.store.journal.interrupted_sizes import keep_interrupted_sizes
    from rmqctl.store.queues.consumequeue import DEFAULT_FILE_SIZE
    from rmqctl.store.queues.queue_table import has_rocksdb_queues
    from rmqctl.store.write.opening.open_for_writing import DEFAULT_COMMITLOG_FILE_SIZE

    if has_rocksdb_queues(files.layout):
        return
    if given is not None:
        if files.config.mapped_file_size_consume_queue not in (None, given):
            raise UsageError(
                "--queue-file-size and mappedFileSizeConsumeQueue of -c differ", hint="leave out one of them"
            )
        files.take_sizes({"mapped_file_size_consume_queue": given})
        return
    keep_interrupted_sizes(files)
    if not files.queues.is_size_assumed or files.log.last_with_data() is None:
        return
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
        "RocketMQ's default; -c broker.conf or --queue-file-size says it otherwise"
    )
