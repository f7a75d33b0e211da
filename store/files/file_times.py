"""Compare file times across file systems that keep them coarser than nanoseconds, or not beyond 2038."""

from __future__ import annotations

# NTFS and CIFS, SMB clients, many network file systems, exFAT, ext3 and 128-byte inodes of ext4, FAT
_UNITS_NS = (100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000)
_LAST_OF_32_BITS_NS = (2**31 - 1) * 1_000_000_000


def is_same_time(found_ns: int, expected_ns: int) -> bool:
    """Return whether a file system that was given the time `expected_ns` may read it back as `found_ns`.

    A file system rounds a time that is set to its own unit, some only when they drop the file from their cache. Where
    times have 32 bits of seconds it keeps a later one as the last of them.
    """
    if found_ns == expected_ns:
        return True
    if found_ns == _LAST_OF_32_BITS_NS:
        return expected_ns > found_ns
    return any(found_ns % unit == 0 and abs(found_ns - expected_ns) < unit for unit in _UNITS_NS)
