"""CRC-32 for compiled modules: the function inside the isal wheel, or one that goes by tables.

isal chooses the instructions that the CPU has. No wheel promises to export its function, so it is looked for and
tried. Only here an address is called.
"""

from __future__ import annotations

import zlib
from importlib.util import find_spec

from rmqctl.store.native import uncompiled as cython

if cython.compiled:
    import cython
    from cython.cimports.libc.stdint import uintptr_t
    from cython.cimports.posix.dlfcn import RTLD_LOCAL, RTLD_NOW, dlopen, dlsym
    from cython.cimports.rmqctl.store.native.views import Bytes, Place

if not cython.compiled:
    from rmqctl.store.native.uncompiled import Bytes, Place

    tables: list[int] = [0] * 2048

COMPILED = cython.compiled
_POLYNOMIAL = cython.declare(cython.uint, 0xEDB88320)
_ONES = cython.declare(cython.uint, 0xFFFFFFFF)


def _make_tables() -> None:
    """tables[256 * n + byte] is what `byte` contributes with n bytes behind it."""
    byte: cython.Py_ssize_t
    step: cython.Py_ssize_t
    _: cython.int
    crc: cython.uint
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[byte] = crc
    for step in range(256, 2048):
        crc = tables[step - 256]
        tables[step] = crc >> 8 ^ tables[crc & 0xFF]


def crc_by_tables(place: Place, length: cython.Py_ssize_t) -> cython.uint:
    """CRC-32 by tables, eight bytes at a time. The caller knows that all of them are there."""
    crc: cython.uint = _ONES
    at: cython.Py_ssize_t = 0
    while length - at >= 8:
        crc = (
            tables[1792 + ((crc ^ place[at]) & 0xFF)]
            ^ tables[1536 + ((crc >> 8 ^ place[at + 1]) & 0xFF)]
            ^ tables[1280 + ((crc >> 16 ^ place[at + 2]) & 0xFF)]
            ^ tables[1024 + ((crc >> 24 ^ place[at + 3]) & 0xFF)]
            ^ tables[768 + place[at + 4]]
            ^ tables[512 + place[at + 5]]
            ^ tables[256 + place[at + 6]]
            ^ tables[place[at + 7]]
        )
        at += 8
    while at < length:
        crc = crc >> 8 ^ tables[(crc ^ place[at]) & 0xFF]
        at += 1
    return crc ^ _ONES


def crc_of(place: Place, length: cython.Py_ssize_t) -> cython.uint:
    """CRC-32 of bytes as zlib gives it: by isal where it was found, else by tables."""
    if cython.compiled and of_isal != cython.NULL:
        return of_isal(0, place, length)
    return crc_by_tables(place, length)


def crc32(data: Bytes, by_tables: bool = False) -> int:
    """CRC-32 of all of `data`; `by_tables` without isal's."""
    length: cython.Py_ssize_t = len(data)
    if length == 0:
        return 0
    if cython.compiled:
        return crc_by_tables(cython.address(data[0]), length) if by_tables else crc_of(cython.address(data[0]), length)
    return crc_by_tables(bytes(data), length) if by_tables else zlib.crc32(data)


def _isal_file() -> str | None:
    """Path of the compiled module in the isal wheel."""
    if find_spec("isal") is None:
        return None
    wheel = find_spec("isal.isal_zlib")
    return None if wheel is None else wheel.origin


def _is_right() -> bool:
    """Whether crc32 is right, for lengths and places of every kind."""
    data = bytes(number * 131 + (number >> 5) & 0xFF for number in range(5000))
    lengths = (*range(70), 127, 255, 1023, 1500, 4096, 4900)
    parts = [data[begin : begin + length] for begin in (0, 1, 7, 13) for length in lengths]
    return all(crc32(part) == zlib.crc32(part) for part in parts)


_make_tables()
if cython.compiled:
    _file = _isal_file()
    if _file is not None:
        _library = cython.declare(cython.p_void, dlopen(_file.encode(), RTLD_NOW | RTLD_LOCAL))
        if _library != cython.NULL:
            of_isal = cython.cast(CrcFunction, cython.cast(uintptr_t, dlsym(_library, b"crc32_gzip_refl")))
            if of_isal != cython.NULL and not _is_right():
                of_isal = cython.NULL
