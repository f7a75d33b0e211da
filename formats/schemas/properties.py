"""The property string of a message and the frame checksum that can end it (docs/formats.md)."""

from __future__ import annotations

from construct import Bytes, GreedyBytes, GreedyRange, NullTerminated, Struct

# a name ends at 0x01, a value at 0x02; brokers of 4.9 to 5.1 leave out the very last 0x02
property_entry = Struct(
    "name" / NullTerminated(GreedyBytes, term=b"\x01") * "UTF-8, ends at 0x01",
    "value" / NullTerminated(GreedyBytes, term=b"\x02", require=False) * "UTF-8, ends at 0x02 or with the string",
)

property_string = GreedyRange(property_entry)

property_crc = Struct(
    "name" / Bytes(8) * "the name `__CRC32#`",
    "name_separator" / Bytes(1) * "0x01",
    "digits" / Bytes(10) * "crc32 of the frame before this & 0x7FFFFFFF: decimal, least significant digit first",
    "property_separator" / Bytes(1) * "0x02",
)
