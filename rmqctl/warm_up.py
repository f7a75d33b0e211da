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

# In the order in which a command that does without them meanwhile misses them.
_KERNELS: dict[str, str] = {}
"""Every module of kernels -> what loads, tries and keeps them."""

_FIRST, _LAST = "--first", "--last"
_started: list[subprocess.Popen[bytes]] = []


def warm_up(place: str = "", module: str = "") -> None:
    """Load every kernel there is, those of `module` at the beginning or at the end."""
    in_order = sorted(_KERNELS, key=lambda name: (name == module) if place == _LAST else (name != module))
    for one in in_order:
        home, _, name = _KERNELS[one].partition(":")
        try:
            load: Callable[[], object] = getattr(import_module(home), name)
        except ImportError:  # without pyarrow there is nothing to use these for
            continue
        load()


def is_warmed_up_elsewhere(module: str, is_waited_for: bool) -> bool:
    """Whether another process compiles the kernels of `module`: it is started when this is asked first, and compiles
    all others too. Those that are waited for are not left to it.

    It ends by itself, after some seconds of work at a low priority, and is not waited for: what it has not kept by
    then is compiled where it is needed. Without a second processor it would only be in the way.
    """
    if not _started and len(os.sched_getaffinity(0)) > 1:
        nothing = subprocess.DEVNULL
        with suppress(OSError):  # it would only have saved time
            _started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "rmqctl.warm_up", _LAST if is_waited_for else _FIRST, module],
                    cwd="/",
                    stdin=nothing,
                    stdout=nothing,
                    stderr=nothing,
                    start_new_session=True,
                )
            )
    return not is_waited_for and any(process.poll() is None for process in _started)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.nice(5)
    warm_up(*sys.argv[1:])
