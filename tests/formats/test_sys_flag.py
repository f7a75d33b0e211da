"""The bits of sysFlag, as RocketMQ's MessageSysFlag and CompressionType read them."""

from __future__ import annotations

import pytest

from rmqctl.formats import properties as sys_flag


@pytest.mark.parametrize(
    ("flag", "kind", "has_slot"), [(0x0, 0x0, True), (0x4, 0x4, False), (0x8, 0x8, True), (0xC, 0xC, False)]
)
@pytest.mark.parametrize("others", [0, 0x733, -1 & ~0xC])
def test_transactions(flag: int, kind: int, has_slot: bool, others: int) -> None:
    assert sys_flag.transaction_type(flag | others) == kind
    assert sys_flag.has_queue_slot(flag | others) is has_slot
    assert kind in sys_flag.TRANSACTION_NAMES


@pytest.mark.parametrize(
    ("flag", "kind", "name"),
    [
        (0x0, None, None),
        (0x300, None, None),
        (0x1, 0, "zlib"),
        (0x101, 1, "lz4"),
        (0x201, 2, "zstd"),
        (0x301, 3, "zlib"),
        (0x401, 4, "invalid (4)"),
        (0x701, 7, "invalid (7)"),
        (-1, 7, "invalid (7)"),
    ],
)
def test_compression(flag: int, kind: int | None, name: str | None) -> None:
    assert sys_flag.compression_type(flag) == kind
    assert sys_flag.compression_name(flag) == name


def test_inner_batches() -> None:
    assert sys_flag.is_inner_batch(0xC0)
    assert sys_flag.is_inner_batch(0x80)
    assert not sys_flag.is_inner_batch(0x40)
