"""A store opened for writing, with everything that runs while it is: what MessageStore and salvage write through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqctl.formats.hosts import LOCAL_HOST, Host
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import named
from rmqctl.store.write.fast.ordinary import wall_clock
from rmqctl.store.write.opening.open_for_writing import give_back, open_store_for_writing
from rmqctl.store.write.writer import StoreWriter


def open_writer(
    root: Path,
    config: StoreConfig | None = None,
    *,
    create: bool = False,
    full_check: bool = False,
    allocate_ahead: bool = True,
    obey_disk_ratio: bool = False,
    clean_expired: bool = False,
    store_host: Host | None = None,
    clock: Callable[[], int] | None = None,
    progress: Progress | None = None,
) -> StoreWriter:
    """The writer of the store at `root`, to be closed at the end; see MessageStore.open for what the options mean and
    for the errors."""
    opened = open_store_for_writing(root, config, create=create, is_full_check=full_check, progress=progress)
    host = store_host or opened.end.last_store_host or LOCAL_HOST
    try:
        with named(root):
            writer = StoreWriter(
                opened, host, clock or wall_clock, allocate_ahead=allocate_ahead, obey_disk_ratio=obey_disk_ratio
            )
    except BaseException:
        give_back(opened)
        raise
    if clean_expired:
        writer.start_cleaning()
    return writer
