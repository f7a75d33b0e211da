"""Mending one queue of 20-byte units: whatever stood there, afterwards there is what the log implies and no more."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import RefusedError
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.plan import CreateFile, MoveAway
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, ConsumeQueue, QueueUnit
from rmqctl.store.recover.queues import ConsumeQueueMend
from tests.goldens import tree_state
from tests.quick import examples

PER_FILE = 10
FILE_SIZE = PER_FILE * 20
EMPTY = bytes(20)
PLACEHOLDER = struct.pack(">qiq", 0, PLACEHOLDER_SIZE, 0)
MESSAGE = 200


def _unit(slot: int, physical_offset: int | None = None, code: int = 7) -> QueueUnit:
    return QueueUnit(slot, 5000 + slot * MESSAGE if physical_offset is None else physical_offset, MESSAGE, code)


def _packed(unit: QueueUnit) -> bytes:
    return struct.pack(">qiq", unit.physical_offset, unit.size, unit.tags_code)


def _folder(store: Path) -> Path:
    return store / "consumequeue" / "T" / "0"


def _write(store: Path, slots: dict[int, bytes]) -> None:
    """A queue of whole files that holds these bytes at these slots."""
    _folder(store).mkdir(parents=True, exist_ok=True)
    for first in {slot - slot % PER_FILE for slot in slots}:
        data = b"".join(slots.get(slot, EMPTY) for slot in range(first, first + PER_FILE))
        (_folder(store) / f"{first * 20:020d}").write_bytes(data)


def _queue(store: Path) -> ConsumeQueue:
    queue = ConsumeQueue("T", 0, _folder(store), FILE_SIZE, Descriptors())
    queue.load()
    return queue


def _mended(
    store: Path, wanted: list[QueueUnit], is_gone: Callable[[int], bool] = lambda offset: offset < 5000
) -> ConsumeQueueMend:
    """The mend of the queue, carried out."""
    store.mkdir(exist_ok=True)
    queue = _queue(store)
    mend = ConsumeQueueMend(queue, store / "consumequeue_ext" / "T" / "0", FILE_SIZE, Descriptors(), is_gone)
    for unit in wanted:
        mend.add(unit)
    mend.finish()
    if mend.changed:
        Journal(StoreLayout(store, (store / "commitlog",)), "test").apply(mend.plan)
    return mend


def _found(store: Path) -> dict[int, bytes]:
    return {unit.queue_offset: _packed(unit) for unit in _queue(store).units(0)}


WANTED = [_unit(slot) for slot in range(23)]
SLOTS = {unit.queue_offset: _packed(unit) for unit in WANTED}


def test_a_right_queue_stays(tmp_path: Path) -> None:
    _write(tmp_path, SLOTS)
    before = tree_state(tmp_path)
    mend = _mended(tmp_path, WANTED)
    assert (mend.changed, mend.added, mend.removed, mend.conflicts) == (False, 0, 0, 0)
    assert tree_state(tmp_path) == before


# what stood there -> (units put, units that went)
CASES: dict[str, tuple[dict[int, bytes], tuple[int, int]]] = {
    "nothing": ({}, (23, 0)),
    "the end is missing": ({slot: SLOTS[slot] for slot in range(15)}, (8, 0)),
    "the beginning is missing": ({slot: SLOTS[slot] for slot in range(10, 23)}, (10, 0)),
    "the middle file is missing": ({slot: SLOTS[slot] for slot in (*range(10), *range(20, 23))}, (10, 0)),
    "a hole": ({**SLOTS, 7: EMPTY, 8: EMPTY}, (2, 0)),
    "placeholders": ({**SLOTS, 7: PLACEHOLDER}, (1, 0)),
    "a wrong offset": ({**SLOTS, 7: _packed(_unit(7, 9))}, (1, 1)),
    "a size that no message has": ({**SLOTS, 7: struct.pack(">qiq", 9, 1, 7)}, (1, 1)),
    "a wrong tags code": ({**SLOTS, 7: _packed(_unit(7, code=8))}, (1, 1)),
    "one slot too low": ({slot - 1: packed for slot, packed in SLOTS.items() if slot}, (23, 22)),
    "more than the log has": ({**SLOTS, 23: _packed(_unit(23)), 24: _packed(_unit(24))}, (0, 2)),
    "whole files more": ({**SLOTS, 35: _packed(_unit(35)), 47: _packed(_unit(47))}, (0, 2)),
    "a file of zeros": ({**SLOTS, 30: EMPTY}, (0, 0)),
    "garbage behind the end": ({**SLOTS, 23: b"\xee" * 20}, (0, 0)),
}


@pytest.mark.parametrize("what", CASES)
def test_it_becomes_what_the_log_implies(tmp_path: Path, what: str) -> None:
    slots, (added, removed) = CASES[what]
    _write(tmp_path, slots)
    mend = _mended(tmp_path, WANTED)
    assert _found(tmp_path) == SLOTS
    assert (mend.added, mend.removed) == (added, removed)
    # no file is left that a broker would take for one of units
    assert {path.name for path in _folder(tmp_path).iterdir()} == {f"{start * 20:020d}" for start in (0, 10, 20)}
    assert not _mended(tmp_path, WANTED).changed


def test_units_of_expired_messages_stay(tmp_path: Path) -> None:
    old = {slot: _packed(_unit(slot, slot * 10)) for slot in range(10)}
    _write(tmp_path, old | {10: EMPTY})
    wanted = [_unit(slot) for slot in range(10, 14)]
    mend = _mended(tmp_path, wanted)
    assert (mend.added, mend.removed) == (4, 0)
    assert _found(tmp_path) == old | {unit.queue_offset: _packed(unit) for unit in wanted}


def test_a_queue_whose_messages_are_all_expired_stays(tmp_path: Path) -> None:
    _write(tmp_path, {slot: _packed(_unit(slot, slot * 10)) for slot in range(4)})
    assert not _mended(tmp_path, []).changed


def test_units_without_any_message_go(tmp_path: Path) -> None:
    _write(tmp_path, SLOTS)
    mend = _mended(tmp_path, [])
    assert (mend.added, mend.removed) == (0, 23)
    assert list(_folder(tmp_path).iterdir()) == []
    assert sum(isinstance(operation, MoveAway) for operation in mend.plan.operations) == 3


def test_slots_of_lost_messages_keep_their_units_or_become_placeholders(tmp_path: Path) -> None:
    """Messages 5 to 8 lie in damage: the log implies nothing for their slots."""
    _write(tmp_path, {slot: SLOTS[slot] for slot in range(7)})
    lost = range(_unit(5).physical_offset, _unit(9).physical_offset)
    wanted = [unit for unit in WANTED if unit.physical_offset not in lost]
    _mended(tmp_path, wanted, lambda offset: offset in lost)
    expected = SLOTS | {7: PLACEHOLDER, 8: PLACEHOLDER}
    assert _found(tmp_path) == expected
    assert not _mended(tmp_path, wanted, lambda offset: offset in lost).changed


def test_a_queue_that_begins_later(tmp_path: Path) -> None:
    _mended(tmp_path, [_unit(slot) for slot in range(13, 16)])
    assert _found(tmp_path) == dict.fromkeys(range(10, 13), PLACEHOLDER) | {slot: SLOTS[slot] for slot in range(13, 16)}


def test_the_first_message_of_a_slot_has_it(tmp_path: Path) -> None:
    mend = _mended(tmp_path, [_unit(0), _unit(1), _unit(1, 9000), _unit(0, 9500), _unit(2, 9900)])
    assert mend.conflicts == 2
    assert _found(tmp_path) == {0: SLOTS[0], 1: SLOTS[1], 2: _packed(_unit(2, 9900))}


@pytest.mark.parametrize("wild", [40, 1000, 1 << 20, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)])
@pytest.mark.parametrize("at", [0, 3, 22])
def test_a_flipped_queue_offset_does_not_spoil_the_queue(tmp_path: Path, wild: int, at: int) -> None:
    """No checksum covers queueOffset. A message far off its place has no slot; those behind it have theirs."""
    wanted = [unit._replace(queue_offset=wild) if slot == at else unit for slot, unit in enumerate(WANTED)]
    mend = _mended(tmp_path, wanted)
    assert mend.conflicts == (1 if wild < 0 or wild > 60 or at else mend.conflicts)
    if mend.conflicts == 1:
        expected = {slot: packed for slot, packed in SLOTS.items() if slot != at}
        if 0 <= at < 22:
            expected[at] = PLACEHOLDER
        assert _found(tmp_path) == expected
    assert sum(isinstance(operation, CreateFile) for operation in mend.plan.operations) <= 5


def test_a_jump_that_a_broker_makes_is_followed(tmp_path: Path) -> None:
    """Units that came back after a truncation move the queue's end on without any message."""
    wanted = [_unit(0), _unit(1), _unit(4, 5000 + 2 * MESSAGE)]
    assert _mended(tmp_path, wanted).conflicts == 0
    assert [*_found(tmp_path)] == [0, 1, 2, 3, 4]


def test_files_of_the_wrong_length(tmp_path: Path) -> None:
    _write(tmp_path, SLOTS | {30: _packed(_unit(30))})
    for name, length in ((0, 150), (10, 230), (20, 61), (30, 33)):
        path = _folder(tmp_path) / f"{name * 20:020d}"
        path.write_bytes((path.read_bytes() + b"\xee" * 50)[:length])
    (_folder(tmp_path) / f"{40 * 20:020d}").write_bytes(b"")
    _mended(tmp_path, WANTED)
    assert _found(tmp_path) == SLOTS
    assert {path.stat().st_size for path in _folder(tmp_path).iterdir()} == {FILE_SIZE}
    assert len(list(_folder(tmp_path).iterdir())) == 3


@pytest.mark.parametrize("name", ["notes.txt", f"{5:020d}"])
def test_strange_files_need_a_decision(tmp_path: Path, name: str) -> None:
    _write(tmp_path, SLOTS)
    (_folder(tmp_path) / name).write_bytes(bytes(FILE_SIZE))
    with pytest.raises(RefusedError) as refused:
        _mended(tmp_path, WANTED)
    assert refused.value.file == str(_folder(tmp_path) / name)
    assert refused.value.hint


SLOT_BYTES = st.one_of(
    st.just(EMPTY),
    st.just(PLACEHOLDER),
    st.binary(min_size=20, max_size=20),
    st.integers(0, 40).map(lambda slot: _packed(_unit(slot))),
    st.integers(0, 499).map(lambda slot: _packed(_unit(0, slot * 10))),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.integers(0, 45), SLOT_BYTES, max_size=30), st.integers(0, 12), st.integers(0, 20))
def test_any_queue_becomes_right(
    tmp_path_factory: pytest.TempPathFactory, slots: dict[int, bytes], first: int, count: int
) -> None:
    store = tmp_path_factory.mktemp("mend")
    _write(store, slots)
    wanted = [_unit(slot) for slot in range(first, first + count)]
    _mended(store, wanted)
    found = _found(store)
    for unit in wanted:
        assert found[unit.queue_offset] == _packed(unit)
    for slot, packed in found.items():
        unit = QueueUnit(slot, *struct.unpack(">qiq", packed))
        is_kept = packed == slots.get(slot) and unit.is_written and unit.physical_offset < 5000
        assert unit in wanted or unit.is_placeholder or is_kept
    assert max(found, default=-1) < first + count or all(
        found[slot] == slots.get(slot) for slot in found if slot >= first + count
    )
    again = _mended(store, wanted)
    assert again.plan.operations == []
