"""Warming new commitlog files, so that no put waits for a page of them (warmMapedFileEnable)."""

from __future__ import annotations

from collections.abc import Callable

from rmqctl.store.commitlog.locked_memory import lock_memory, unlocked_sentence
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.mapped_file import MappedFile


def warming(config: StoreConfig, is_sync: bool) -> Callable[[MappedFile], None] | None:
    """Return what prepares each new file, None where the settings want nothing. `is_sync`: SYNC_FLUSH, with which the
    disk is waited for after every flushLeastPagesWhenWarmMapedFile pages."""
    if not config.warm_maped_file_enable:
        return None
    flush_each = max(1, config.flush_least_pages_when_warm_maped_file) * io.PAGE_SIZE if is_sync else 0
    told: list[str] = []

    def warm(file: MappedFile) -> None:
        file.warm(flush_each)
        reason = lock_memory(file.writable_map.map)
        if reason is not None and not told:
            import logging  # here, because most stores are opened to be read

            told.append(unlocked_sentence("a commitlog file", file.size, reason))
            logging.getLogger("rmqctl.store").warning(told[0])

    return warm
