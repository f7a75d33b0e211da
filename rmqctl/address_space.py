"""Refuse to load libraries that abort the process where its address space is limited (ulimit -v)."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Sequence
from types import ModuleType

from rmqctl.formats.errors import ExhaustedError

_MIB = 1 << 20
# free MiB of address space with which the library loads and works; with less its C code ends the process
NEEDED_MIB = {"numpy": 96, "pyarrow": 384, "duckdb": 2300}
_FEW_DESCRIPTORS = 64


def guard_imports() -> None:
    """Check the free address space before each library of NEEDED_MIB is imported; nothing where it is unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        sys.meta_path.insert(0, _Guard(limit))


def load_unwinder() -> None:
    """Load what glibc needs where a thread ends, while there is a descriptor for it: without it, glibc aborts."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _FEW_DESCRIPTORS:
        import ctypes

        with contextlib.suppress(OSError):  # another C library has no such file, and no need of it
            ctypes.CDLL("libgcc_s.so.1")


class _Guard:
    """Find no module; raise where a library would not have the address space that it needs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Return None; ExhaustedError where too little is free."""
        needed = NEEDED_MIB.get(fullname)
        if needed is None or self._limit - _used() >= needed * _MIB:
            return
        said = f"{fullname} needs {needed} MiB of address space, and {max(0, self._limit - _used()) // _MIB} are free"
        raise ExhaustedError(said, hint="raise the limit of memory (ulimit -v)")


def _used() -> int:
    """Return the bytes of address space that the process has mapped."""
    with open("/proc/self/statm", encoding="ascii") as fields:
        return int(fields.read().split()[0]) * resource.getpagesize()
