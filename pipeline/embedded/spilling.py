"""A folder for what a query cannot hold in memory, gone with the process even where that is killed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rmqctl.pipeline.engine.scratch import remove_for_good
from rmqctl.store.files import io

# waits until the other end of its standard input is closed, which the kernel does when a process ends, however it ends
_WATCHER = 'read -r _; exec rm -rf -- "$1"'
_PATIENCE = 10.0


@contextlib.contextmanager
def spill_folder() -> Iterator[Path]:
    """A new folder for temporary files. WriteFailedError where there can be none."""
    folder = io.make_temporary_directory("rmqctl-sql-")
    watcher: subprocess.Popen[bytes] | None = None
    # without a shell nothing is left either, unless the process is killed
    with contextlib.suppress(OSError):
        watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "sh", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield folder
    finally:
        try:
            remove_for_good(folder)
        finally:
            if watcher is not None:
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    watcher.communicate(timeout=_PATIENCE)
