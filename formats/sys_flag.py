"""Meaning of the sysFlag bits: transaction type, compression type and their names (docs/formats.md)."""

from __future__ import annotations

from rmqctl.formats.layouts import (
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_INNER_BATCH,
    TRANSACTION_MASK,
)

TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
TRANSACTION_NAMES = {
    TRANSACTION_NONE: "none",
    TRANSACTION_PREPARED: "prepared",
    TRANSACTION_COMMIT: "commit",
    TRANSACTION_ROLLBACK: "rollback",
}

# CompressionType: 0 is what producers before 5.0 wrote, always zlib; 4..7 are invalid
COMPRESSION_ZLIB_LEGACY = 0
COMPRESSION_LZ4 = 1
COMPRESSION_ZSTD = 2
COMPRESSION_ZLIB = 3
COMPRESSION_NAMES = {
    COMPRESSION_ZLIB_LEGACY: "zlib",
    COMPRESSION_LZ4: "lz4",
    COMPRESSION_ZSTD: "zstd",
    COMPRESSION_ZLIB: "zlib",
}


def transaction_type(sys_flag: int) -> int:
    """One of the TRANSACTION_ values."""
    return sys_flag & TRANSACTION_MASK


def has_queue_slot(sys_flag: int) -> bool:
    """Whether a message of this flag gets a consumequeue unit: prepared and rolled back ones do not."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def compression_type(sys_flag: int) -> int | None:
    """The three-bit compression type of a compressed body, None for a plain body."""
    if not sys_flag & SYS_FLAG_COMPRESSED:
        return None
    return (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT


def compression_name(sys_flag: int) -> str | None:
    """`zlib`, `lz4`, `zstd` or `invalid (n)`; None for a plain body."""
    kind = compression_type(sys_flag)
    if kind is None:
        return None
    return COMPRESSION_NAMES.get(kind, f"invalid ({kind})")


def is_inner_batch(sys_flag: int) -> bool:
    """Whether the body is a concatenation of batch items."""
    return bool(sys_flag & SYS_FLAG_INNER_BATCH)
