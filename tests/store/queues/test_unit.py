"""What a slot of a queue says."""

from __future__ import annotations

import pytest

from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, QueueUnit, ext_address, ext_offset
from tests.opened import reader


@pytest.mark.parametrize(
    ("physical_offset", "size", "is_written", "is_placeholder"),
    [
        (0, 0, False, False),
        (0, 1, True, False),
        (5, 300, True, False),
        (0, PLACEHOLDER_SIZE, False, True),
        (5, PLACEHOLDER_SIZE, False, False),
        (5, -1, False, False),
        (-1, 300, False, False),
    ],
)
def test_kinds_of_slots(physical_offset: int, size: int, is_written: bool, is_placeholder: bool) -> None:
    unit = QueueUnit(0, physical_offset, size, 0)
    assert (unit.is_written, unit.is_placeholder) == (is_written, is_placeholder)


def test_ends() -> None:
    assert QueueUnit(5, 100, 20, 0).end == 120
    assert QueueUnit(5, 100, 20, 0).next_queue_offset == 6
    assert QueueUnit(5, 100, 20, 0, batch_size=4).next_queue_offset == 9


def test_ext_addresses() -> None:
    """ConsumeQueueExt: tags codes are 32-bit hashes or times; an address lies below all of them."""
    assert ext_offset(ext_address(0)) == 0
    assert ext_offset(ext_address(123456)) == 123456
    assert ext_address(0) == -(1 << 63)
    for code in (0, -1, -(1 << 31), (1 << 31) - 1, 1_795_000_000_000):
        assert ext_offset(code) is None
    assert ext_offset(-(1 << 31) - 1) is not None


@pytest.mark.parametrize("name", ["cqext", "v4-cqext", "clean"])
def test_goldens_have_addresses_only_with_ext_queues(name: str) -> None:
    codes = [unit.tags_code for queue in reader(name).files.queues.all() for unit in queue.units(0)]
    assert {ext_offset(code) is not None for code in codes} == {"cqext" in name}
