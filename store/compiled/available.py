"""What this machine compiles with and for: whether there is numba, and which CRC-32 compiled code may call."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from rmqctl.store.compiled.notices import compiling_begins, is_compiled_elsewhere, notice
from rmqctl.store.status import FAST

NO_NUMBA = "RMQCTL_NO_NUMBA"
"""Environment variable that keeps from compiling: set to 1."""

_MORE_MEMORY = "raise the limit of memory (ulimit -v)"
_COMPILING = "compiling the fast path for this machine, 5 to 20 seconds of processor time, once"


_little_to_do = [0]


@contextlib.contextmanager
def little_to_do() -> Iterator[None]:
    """Within this nothing compiled is loaded, in any thread: so little is to be done that loading would take longer.

    That is a choice, and no reason to tell anybody that it is slow here.
    """
    _little_to_do[0] += 1
    try:
        yield
    finally:
        _little_to_do[0] -= 1


def is_little() -> bool:
    """Whether somebody has said so."""
    return _little_to_do[0] > 0


def why_plain() -> str | None:
    """Why nothing is compiled here, as the end of a sentence; None where numba is there and wanted. Loads numba."""
    if is_little():
        return "there is little to do"
    return f"{NO_NUMBA}=1 is set" if os.environ.get(NO_NUMBA) == "1" else _why_no_numba()


@functools.cache
def _why_no_numba() -> str | None:
    try:
        from rmqctl.store.compiled import compiling  # noqa: F401 - whether it can be imported is what is asked
    except (ImportError, OSError, MemoryError, RuntimeError) as error:  # llvmlite without enough memory: OSError
        if isinstance(error, ModuleNotFoundError) and error.name in ("numba", "llvmlite"):
            return f"numba is not installed: {FAST}"
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        lacks_memory = isinstance(error, MemoryError) or limit != resource.RLIM_INFINITY
        return (
            f"numba does not work here ({str(error) or type(error).__name__}): {_MORE_MEMORY if lacks_memory else FAST}"
        )
    return None


def say_compiling(module: str) -> None:
    """Tell that the kernels of a module are about to be compiled, and that this process waits for them."""
    notice(_COMPILING)
    compiling_begins(module)


def is_left_to_others(module: str) -> bool:
    """Whether another process compiles the kernels of a module now, which is told as well."""
    if not is_compiled_elsewhere(module):
        return False
    notice(_COMPILING)
    return True


def isal_crc() -> tuple[Any, str | None]:
    """The CRC inside the isal wheel as a ctypes function, or why there is none.

    It chooses instructions that the CPU has by itself. No wheel promises to export it, so it is looked for and tried.
    """
    try:
        from isal import isal_zlib

        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (ImportError, OSError, AttributeError):
        return None, f"the wheel isal is missing or has no CRC to call: {FAST}"
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
