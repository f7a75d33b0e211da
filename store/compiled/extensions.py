"""Loads what is compiled from C when rmqctl is installed, tries it, and does without where there is none.

It is compiled if there is a C compiler then (setup.py); for CPython with its GIL, of whatever version.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from rmqctl.store.compiled.available import isal_crc

NO_EXTENSION = "RMQCTL_NO_EXTENSION"
"""Environment variable that keeps from what is compiled at install: set to 1."""

ROOT = Path(__file__).parents[2]
"""Sources are named below this folder; an installed package does without them."""


def load_extension(
    name: str, what: str, sources: Sequence[str], is_right: Callable[[ModuleType], bool]
) -> tuple[ModuleType | None, str | None]:
    """The module `name`, or why there is none as the end of a sentence about `what` it is. `is_right` tries it."""
    if os.environ.get(NO_EXTENSION) == "1":
        return None, f"{NO_EXTENSION}=1 is set"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None, f"the compiled {what} is not made for a Python without GIL"
    try:
        # compiled at install, or not there
        module = importlib.import_module(name)
    except ImportError:
        return None, f"the {what} was not compiled: install a C compiler, then rmqctl again (make install)"
    if source_number(sources) not in (module.SOURCE, ""):
        return None, f"the {what} was compiled from another source: install rmqctl again (make install)"
    if not is_right(module):
        return None, f"the compiled {what} gives wrong results here"
    return module, None


def source_number(sources: Sequence[str]) -> str:
    """A number of the sources, as setup.py has it compiled in; "" where they are not there."""
    try:
        return format(zlib.crc32(b"".join((ROOT / name).read_bytes() for name in sources)), "08x")
    except OSError:
        return ""


@functools.cache
def crc_address() -> int:
    """Of isal's CRC, as extensions take it; 0 without it: they have a slower one of their own."""
    function, _ = isal_crc()
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
