"""The budget of a disk at its limits: when it is looked at, and from where on room is scarce or a disk too full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.formats.properties import encode_properties
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.checks import UNIT_COST, Headroom
from tests.store.write.writing import message, small

_PLENTY = 256 * 1024 * 1024
_LOOK_EVERY = 1 << 32


def _looked(folder: Path, free: int, patch: pytest.MonkeyPatch) -> tuple[Headroom, list[int]]:
    """One that has looked at a disk with so much free space, and what it waited for since."""
    patch.setattr(io, "free_bytes", lambda _path: free)
    waited: list[int] = []
    headroom = Headroom(folder, waited.append)
    headroom.settle(1000)
    return headroom, waited


def test_the_disk_is_looked_at_again_after_so_many_bytes_and_not_one_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headroom, waited = _looked(tmp_path, 1 << 40, monkeypatch)
    assert waited == [0]
    for round_end in (2000, 3000):
        waited.clear()
        headroom.admit(_LOOK_EVERY - 1)
        headroom.settle(round_end)
        assert waited == []
        headroom.admit(1)
        headroom.settle(round_end)
        # what was in the log at the look before is dispatched by now
        assert waited == [round_end - 1000]


def test_room_is_scarce_below_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There every put waits for the dispatch of all before it, and may take no more than is left."""
    headroom, waited = _looked(tmp_path, _PLENTY, monkeypatch)
    assert waited == [0]
    assert headroom.admit(_PLENTY)
    headroom, waited = _looked(tmp_path, _PLENTY - 1, monkeypatch)
    assert waited == [0, 1000]
    assert not headroom.admit(_PLENTY)


@pytest.mark.parametrize(("free", "is_together"), [(2 << 30, True), ((2 << 30) - 8, False)])
def test_messages_are_counted_together_from_so_much_free_space_on(
    free: int, is_together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headroom, _ = _looked(tmp_path, free, monkeypatch)
    assert headroom.admit_ordinary(100) == is_together


@pytest.mark.parametrize(
    ("used", "available", "is_over"),
    [
        (910, 90, True),
        (909, 91, False),
        (999, 1, True),
        # what is kept for root counts as neither
        (91, 9, True),
        (90, 10, False),
    ],
)
def test_a_disk_is_too_full_from_the_percentage_on_that_is_allowed(
    used: int, available: int, is_over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As df counts: of what somebody else than root can have."""
    kept = 500
    found = os.statvfs_result((4096, 512, used + available + kept, available + kept, available, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    monkeypatch.setattr(io, "free_bytes", lambda _path: 1 << 40)
    obeying, careless = Headroom(tmp_path, lambda _: None, 91), Headroom(tmp_path, lambda _: None)
    for headroom in (obeying, careless):
        assert not headroom.is_over_ratio
        headroom.settle(0)
    assert (obeying.is_over_ratio, careless.is_over_ratio) == (is_over, False)


@pytest.mark.parametrize(
    ("properties", "units"),
    [
        ({}, 2),
        ({"KEYS": "a"}, 3),
        ({"KEYS": "a b c"}, 5),
        # with the offsets of further queues beside it
        ({"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}, 4),
        ({"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "KEYS": "a"}, 5),
    ],
    ids=str,
)
def test_there_is_room_for_each_unit_and_key_or_the_message_is_refused(
    properties: dict[str, str], units: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = message(properties=properties)
    frame = 91 + len("TopicA") + 100 + len(encode_properties(properties))
    if "INNER_MULTI_DISPATCH" in properties:
        frame += len("INNER_MULTI_QUEUE_OFFSET\x010,0\x02")
    free = (1 << 20) + frame + units * UNIT_COST - 1
    monkeypatch.setattr(io, "free_bytes", lambda _path: free)
    config = small(enable_lmq=True, enable_multi_dispatch=True)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True, allocate_ahead=False) as store:
        assert store.put(given).status is PutStatus.DISK_FULL
        free += 1
        assert store.put(given).status is PutStatus.PUT_OK
