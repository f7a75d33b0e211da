"""Which rung of the ladder does the walk: compiled with isal's CRC, compiled with our own CRC, or plain Python."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from store.columns.notices import notice

NO_NUMBA = "RMQCTL_NO_NUMBA"
NO_ISAL = "RMQCTL_NO_ISAL"
"""Environment variables that keep from a rung: set to 1."""

_INSTALL = "pip install 'rmqctl[fast]'"
_loading = threading.Lock()


class Engine(NamedTuple):
    """What walks a window. `walk_window` is None on the plain rung; `crc_function` is an address, owned by `owner`."""

    walk_window: Callable[..., int] | None
    crc_function: int
    notice: str | None
    owner: object = None


def speed_notice() -> str | None:
    """Why bulk work is slower here than it could be, as one sentence for people; None where it is not.

    Loads the engine if nothing has done so before: ask when bulk work begins, not at start.
    """
    return engine().notice


def engine() -> Engine:
    """The highest rung that works here and that the environment allows; says why it is not higher (`notices`)."""
    with _loading:
        loaded = _load(os.environ.get(NO_NUMBA) == "1", os.environ.get(NO_ISAL) == "1")
    if loaded.notice is not None:
        notice(loaded.notice)
    return loaded


def say_compiling() -> None:
    """Tell that kernels are about to be compiled."""
    notice("compiling the fast path for this machine, a few seconds, once")


@functools.cache
def _load(no_numba: bool, no_isal: bool) -> Engine:
    if no_numba:
        return Engine(None, 0, f"whole logs are read slowly because {NO_NUMBA}=1 is set")
    try:
        from store.columns import kernels
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name in ("numba", "llvmlite")
        why = "numba is not installed" if missing else f"numba does not work here ({error})"
        return Engine(None, 0, f"whole logs are read slowly because {why}: {_INSTALL}")
    function, slower = (None, f"{NO_ISAL}=1 is set") if no_isal else isal_crc()
    try:
        return kernels.load(function, slower, say_compiling)
    except Exception as error:  # noqa: BLE001 - numba and LLVM raise anything; the plain rung does the same work
        detail = str(error).partition("\n")[0][:200]
        why = f"its kernels cannot be compiled here ({type(error).__name__}: {detail})"
        return Engine(None, 0, f"whole logs are read slowly because {why}")


def isal_crc() -> tuple[Any, str | None]:
    """The CRC inside the isal wheel as a ctypes function, or why there is none.

    It chooses instructions that the CPU has by itself. No wheel promises to export it, so it is looked for and tried.
    """
    try:
        from isal import isal_zlib

        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (ImportError, OSError, AttributeError):
        return None, f"the wheel isal is missing or has no CRC to call: {_INSTALL}"
    function.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
    function.restype = ctypes.c_uint32
    if is_crc32(lambda address, length: int(function(0, address, length))):
        return function, None
    return None, "the CRC of the wheel isal gives wrong results"


def is_crc32(crc: Callable[[int, int], int]) -> bool:
    """Whether crc(address, length) is CRC-32: tried with lengths and alignments of every kind."""
    data = bytes(number * 131 + (number >> 5) & 0xFF for number in range(5000))
    held = ctypes.create_string_buffer(data, len(data))
    address = ctypes.addressof(held)
    places = [(begin, length) for begin in (0, 1, 7, 13) for length in (*range(70), 127, 255, 1023, 1500, 4096, 4900)]
    return all(crc(address + begin, length) == zlib.crc32(data[begin : begin + length]) for begin, length in places)
