"""How many messages are taken away with the files of a cleaning."""

from __future__ import annotations

from rmqctl.formats.errors import UnsupportedError
from rmqctl.store.store_files import StoreFiles


def messages_before(files: StoreFiles, min_offset: int) -> int | None:
    """Units of all consume queues that point from the commitlog's beginning up to physical offset `min_offset`.

    Counted by the queues, which takes a few reads where the log itself would have to be read to its new beginning. None
    where the queues cannot be read (a RocksDB).
    """
    if not files.log.files:
        return 0
    try:
        queues = files.queues.all()
    except UnsupportedError:
        return None
    now = files.log.min_offset
    return sum(max(0, queue.min_offset(max(now, min_offset)) - queue.min_offset(now)) for queue in queues)
