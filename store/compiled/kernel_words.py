"""What kernels write fields of records with that lie in tables of 32-bit words. Importing this module imports numba."""

from __future__ import annotations

from rmqctl.store.compiled.compiling import inner


@inner
def swapped(value: int) -> int:
    """The low 32 bits of a value with their bytes in the other order: as a big-endian field has them."""
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8) & 0xFF00 | (value >> 24) & 0xFF
