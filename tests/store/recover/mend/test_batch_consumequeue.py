"""Mending one queue of 46-byte units."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.store.compare.queues import has_batch_slot
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.journal.journal import Journal
from rmqctl.store.queues.consumequeue import BATCH_UNIT_SIZE as UNIT_SIZE
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, QueueUnit
from rmqctl.store.recover.queues import BatchConsumeQueueMend
from tests.goldens import tree_state
from tests.quick import examples

FILE_SIZE = 4 * UNIT_SIZE
EXPIRED = 5000


def _unit(number: int, physical_offset: int | None = None) -> QueueUnit:
    offset = EXPIRED + number * 1000 if physical_offset is None else physical_offset
    return QueueUnit(number * 3, offset, 500, 7, 1_700_000_000_000 + number, 3)


def _folder(store: Path) -> Path:
    return store / "batchconsumequeue" / "T" / "0"


def _queue(store: Path) -> BatchConsumeQueue:
    queue = BatchConsumeQueue("T", 0, _folder(store), FILE_SIZE, Descriptors())
    queue.load()
    return queue


def _write(store: Path, units: list[QueueUnit]) -> None:
    queue = _queue(store)
    for unit in units:
        queue.append(unit)


def _mended(store: Path, wanted: list[QueueUnit]) -> BatchConsumeQueueMend:
    mend = BatchConsumeQueueMend(_queue(store), FILE_SIZE, Descriptors(), lambda offset: offset < EXPIRED)
    for unit in wanted:
        mend.add(unit)
    mend.finish()
    if mend.changed:
        Journal(StoreLayout(store, (store / "commitlog",)), "test").apply(mend.plan)
    return mend


WANTED = [_unit(number) for number in range(10)]


@pytest.mark.parametrize(
    ("present", "changes"),
    [
        (WANTED, (0, 0)),
        ([], (10, 0)),
        (WANTED[:5], (5, 0)),
        ([*WANTED, _unit(10), _unit(11), _unit(12)], (0, 3)),
        ([*WANTED[:4], _unit(4, 77_777), *WANTED[5:]], (1, 1)),
        ([unit._replace(store_timestamp=1) for unit in WANTED], (10, 10)),
    ],
)
def test_it_becomes_what_the_log_implies(tmp_path: Path, present: list[QueueUnit], changes: tuple[int, int]) -> None:
    store = tmp_path / "store"
    store.mkdir()
    _write(store, present)
    before = tree_state(store)
    mend = _mended(store, WANTED)
    assert (mend.added, mend.removed, mend.conflicts) == (*changes, 0)
    assert list(_queue(store).units(0)) == WANTED
    assert len(list(_folder(store).iterdir())) == 3
    assert mend.changed == (changes != (0, 0))
    assert mend.changed or tree_state(store) == before
    assert not _mended(store, WANTED).changed


def test_expired_units_stay_before_the_others(tmp_path: Path) -> None:
    old = [_unit(number, number * 100) for number in range(3)]
    _write(tmp_path, old)
    _mended(tmp_path, WANTED[3:])
    assert list(_queue(tmp_path).units(0)) == [*old, *WANTED[3:]]


def test_a_torn_queue(tmp_path: Path) -> None:
    _write(tmp_path, WANTED)
    first = _folder(tmp_path) / ("0" * 20)
    first.write_bytes(first.read_bytes()[: UNIT_SIZE + 7])
    _mended(tmp_path, WANTED)
    assert list(_queue(tmp_path).units(0)) == WANTED
    assert {path.stat().st_size for path in _folder(tmp_path).iterdir()} == {FILE_SIZE}


@pytest.mark.parametrize(
    "wild",
    [
        {"queue_offset": -5},
        {"batch_size": 40_000},
        {"batch_size": 0},
        {"batch_size": -1},
    ],
)
def test_units_that_cannot_be_written_are_conflicts(tmp_path: Path, wild: dict[str, int]) -> None:
    """INNER_NUM is a text that no checksum covers, and its place in the unit has 16 bits."""
    bad = _unit(4)._replace(**wild)
    mend = _mended(tmp_path, [*WANTED[:4], bad, *WANTED[5:]])
    assert mend.conflicts == 1
    assert list(_queue(tmp_path).units(0)) == [*WANTED[:4], *WANTED[5:]]


@pytest.mark.parametrize(("size", "is_slot"), [(0, False), (1, True), (32767, True), (32768, False)])
def test_a_batch_size_is_a_positive_short(size: int, is_slot: bool) -> None:
    assert has_batch_slot(_unit(4)._replace(batch_size=size), 0) is is_slot


@settings(max_examples=examples(40), deadline=None)
@given(st.binary(max_size=FILE_SIZE * 2), st.integers(0, 10))
def test_any_bytes_become_right(tmp_path_factory: pytest.TempPathFactory, data: bytes, count: int) -> None:
    store = tmp_path_factory.mktemp("mend")
    _folder(store).mkdir(parents=True)
    for start in range(0, len(data), FILE_SIZE):
        (_folder(store) / f"{start:020d}").write_bytes(data[start : start + FILE_SIZE])
    _mended(store, WANTED[:count])
    found = list(_queue(store).units(0))
    assert found[len(found) - count :] == WANTED[:count]
    assert all(unit.physical_offset < EXPIRED for unit in found[: len(found) - count])
    assert not _mended(store, WANTED[:count]).changed


def test_a_first_batch_of_one_message_is_known_to_be_there(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    units = [
        QueueUnit(0, EXPIRED, 500, 7, 1_700_000_000_000, 1),
        QueueUnit(1, EXPIRED + 1000, 500, 7, 1_700_000_000_001, 3),
    ]
    _write(store, units)
    mend = _mended(store, units)
    assert (mend.added, mend.removed, mend.changed) == (0, 0, False)
