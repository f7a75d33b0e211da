"""Writes the broker's tables to config/, one after the other in a thread of its own: no client waits for a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.remoting.services import Tell
from rmqctl.store.config.config_files import write_config


class ConfigSaver:
    """Files of one folder. `tell` takes a line for what could not be written."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder = folder
        self._tell = tell
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[None]] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="config")

    def save(
        self,
        name: str,
        content: Callable[[], Any],
        before: Callable[[], None] | None = None,
        write: Callable[[Path, Any], None] | None = None,
    ) -> Future[None]:
        """Have what `content` gives then written to the file `name`, as soon as what is being written is; `before` is
        called in between. Both are called in a thread of ours, and so is `write`, where the file is no JSON. However
        often a file is to be saved, it waits once.

        The future is done when the file is on disk, or could not be written, which is told.
        """
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = self._executor.submit(self._save, name, content, before, write)
            return waiting

    def _save(
        self,
        name: str,
        content: Callable[[], Any],
        before: Callable[[], None] | None,
        write: Callable[[Path, Any], None] | None,
    ) -> None:
        with self._lock:
            # what changes from now on needs to be saved once more
            del self._waiting[name]
        try:
            found = content()
            if before is not None:
                before()
            (write or write_config)(self._folder / name, found)
        except RmqctlError as error:
            self._tell(f"{name} is not written: {error}")

    def close(self) -> None:
        """Wait until all is written."""
        self._executor.shutdown()
