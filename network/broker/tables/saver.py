"""Writes the broker's tables to config/, one after the other in a thread of its own: no client waits for a disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.remoting.services import Tell
from rmqctl.store.config_files import write_config


class ConfigSaver:
    """Files of one folder. `tell` takes a line for what could not be written."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder = folder
        self._tell = tell
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="config")

    def save(self, name: str, content: Any, before: Callable[[], None] | None = None) -> Future[None]:
        """Have `content`, which nobody changes any more, written to the file `name`; `before` is called before that in
        the same thread. The future is done when the file is on disk, or could not be written, which is told."""
        return self._executor.submit(self._save, name, content, before)

    def _save(self, name: str, content: Any, before: Callable[[], None] | None) -> None:
        try:
            if before is not None:
                before()
            write_config(self._folder / name, content)
        except RmqctlError as error:
            self._tell(f"{name} is not written: {error}")

    def close(self) -> None:
        """Wait until all is written."""
        self._executor.shutdown()
