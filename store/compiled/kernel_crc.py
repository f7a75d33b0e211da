"""CRC-32 sixteen bytes at a time by tables: for machines without the isal wheel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from rmqctl.store.compiled.compiling import c_function
from rmqctl.store.compiled.kernel_memory import byte_at, word_at

_STEP = 16
_POLYNOMIAL = 0xEDB88320
_LOW_WORD = 0xFFFFFFFF


def _tables() -> Any:
    """tables[n][byte]: what `byte` contributes with n bytes behind it."""
    tables = np.zeros((_STEP, 256), np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, _STEP):
        before = tables[step - 1]
        tables[step] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


_TABLES = _tables()


_SIGNATURE = types.uint32(types.uint32, types.int64, types.int64)


def compile_crc_by_tables(stamp: int) -> Any:
    """CRC-32 as a C function with an `address`; `stamp` is that of this module, so that code of another source is never
    taken."""

    def crc_by_tables(seed: int, address: int, length: int) -> int:
        """CRC-32 of bytes as zlib gives it, continued from `seed`."""
        crc = (seed & _LOW_WORD) ^ _LOW_WORD
        at = address
        end = address + length
        while end - at >= _STEP:
            first = word_at(at) ^ crc
            second = word_at(at + 8)
            crc = (
                _TABLES[15, first & 0xFF]
                ^ _TABLES[14, first >> 8 & 0xFF]
                ^ _TABLES[13, first >> 16 & 0xFF]
                ^ _TABLES[12, first >> 24 & 0xFF]
                ^ _TABLES[11, first >> 32 & 0xFF]
                ^ _TABLES[10, first >> 40 & 0xFF]
                ^ _TABLES[9, first >> 48 & 0xFF]
                ^ _TABLES[8, first >> 56 & 0xFF]
                ^ _TABLES[7, second & 0xFF]
                ^ _TABLES[6, second >> 8 & 0xFF]
                ^ _TABLES[5, second >> 16 & 0xFF]
                ^ _TABLES[4, second >> 24 & 0xFF]
                ^ _TABLES[3, second >> 32 & 0xFF]
                ^ _TABLES[2, second >> 40 & 0xFF]
                ^ _TABLES[1, second >> 48 & 0xFF]
                ^ _TABLES[0, second >> 56 & 0xFF]
            )
            at += _STEP
        while at < end:
            crc = crc >> 8 ^ _TABLES[0, (crc ^ byte_at(at)) & 0xFF]
            at += 1
        return crc ^ _LOW_WORD if stamp else 0

    return c_function(crc_by_tables, _SIGNATURE)
