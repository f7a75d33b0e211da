"""Compiles everything that is compiled when it is first used, so that no command has to: `python -m rmqctl.warm_up`.

`make install` runs it, and so does the first command that has to compile something, beside its own work. The machine
code is kept where numba keeps it: beside the sources, or in the user's cache directory (see `compiling.kernel`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

# What takes longest comes last: whoever compiles one of these meanwhile finds all others done.
_KERNELS = {
    "rmqctl.store.columns.kernel_frames": "rmqctl.store.columns.frames:frame_writer",
    "rmqctl.store.write.bulk.kernel_bulk": "rmqctl.store.write.bulk.bulk_kernels:bulk_kernels",
    "rmqctl.store.write.bulk.kernel_join": "rmqctl.store.write.bulk.property_join:join_kernel",
    "rmqctl.store.survey.kernel_index": "rmqctl.store.survey.index_entries:index_kernels",
    "rmqctl.store.survey.kernel_run_units": "rmqctl.store.survey.run_units:unit_kernels",
    "rmqctl.store.scan.kernel_properties": "rmqctl.store.scan.property_engine:compiled_columns",
    "rmqctl.store.export.kernel_lines": "rmqctl.messages.text_engine:text_kernels",
    "rmqctl.store.columns.kernel_walk": "rmqctl.store.columns.engine:engine",
    "rmqctl.store.scan.kernel_json_lines": "rmqctl.messages.line_columns:reader_of_lines",
}
"""Every module of kernels -> what loads, tries and keeps them."""

_started: list[subprocess.Popen[bytes]] = []


def warm_up(last: str = "") -> None:
    """Load every kernel there is, those of the module `last` at the end."""
    for module in sorted(_KERNELS, key=lambda name: name == last):
        home, _, name = _KERNELS[module].partition(":")
        try:
            load: Callable[[], object] = getattr(import_module(home), name)
        except ImportError:  # without pyarrow there is nothing to use these for
            continue
        load()


def warm_up_elsewhere(module: str) -> None:
    """Start a process that compiles all but the kernels of a module, which this one compiles itself, and then these.

    It ends by itself, after some seconds of work at a low priority, and is not waited for: what it has not kept by
    then is compiled where it is needed. Without a second processor it would only be in the way.
    """
    if _started or len(os.sched_getaffinity(0)) < 2:
        return
    nothing = subprocess.DEVNULL
    with suppress(OSError):  # it would only have saved time
        _started.append(
            subprocess.Popen(
                [sys.executable, "-m", "rmqctl.warm_up", module],
                cwd="/",
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,
            )
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.nice(5)
    warm_up(*sys.argv[1:])
