"""The CRC of the wheel isal by its address, for kernels."""

from __future__ import annotations

import ctypes
import functools

from rmqctl.store.compiled.available import isal_crc


@functools.cache
def crc_address() -> int:
    """Of isal's CRC, as kernels take it; 0 without it."""
    function, _ = isal_crc()
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
