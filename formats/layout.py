"""A fixed layout derived from a schema: its struct.Struct, field offsets and numpy dtype."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

_NUMPY_KINDS = {"b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8", "Q": "u8"}


class Layout:
    """Record of fixed size. `fields` are (name, struct code, offset in bytes, size in bytes); `order`: ">" for
    big-endian integers, "<" for little-endian ones."""

    __slots__ = ("fields", "name", "order", "pack_into", "size", "struct", "unpack_from")

    def __init__(self, name: str, fields: tuple[tuple[str, str, int, int], ...], order: str = ">") -> None:
        self.name = name
        self.fields = fields
        self.order = order
        self.struct = struct.Struct(order + "".join(code for _, code, _, _ in fields))
        self.size = self.struct.size
        self.unpack_from = self.struct.unpack_from
        self.pack_into = self.struct.pack_into

    def offset(self, field: str) -> int:
        """Byte offset of `field`; KeyError if the layout has none of that name."""
        for name, _, offset, _ in self.fields:
            if name == field:
                return offset
        raise KeyError(field)

    def dtype(self) -> numpy.dtype[numpy.void]:
        """The same layout as a packed numpy dtype (numpy is imported on first use)."""
        import numpy

        kinds = [
            self.order + _NUMPY_KINDS[code] if code in _NUMPY_KINDS else f"V{size}" for _, code, _, size in self.fields
        ]
        return numpy.dtype(
            {
                "names": [name for name, _, _, _ in self.fields],
                "formats": kinds,
                "offsets": [offset for _, _, offset, _ in self.fields],
                "itemsize": self.size,
            }
        )
