"""Which messages of a queue are superseded: the topic was deleted and created again, or offsets were given twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.store.compare.lives import HeldUnits, Lives, Stretch, Stretches, superseded

SIZE = 100


def _rows(slots: list[int]) -> Stretches:
    rows = Stretches()
    for number, slot in enumerate(slots):
        rows.add(Stretch(slot, slot + 1, number * SIZE, number * SIZE))
    return rows


def _held(units: dict[int, int]) -> HeldUnits:
    """A queue whose files lead from these slots to messages, by their number in the log."""
    return lambda begin, end: np.array([units[slot] * SIZE for slot in sorted(units) if begin <= slot < end], np.int64)


def _live(slots: list[int], lives: Lives) -> dict[int, int]:
    """The slots with the numbers of their messages."""
    live = [(slot, number) for number, slot in enumerate(slots) if lives.find(slot, number * SIZE) is None]
    assert len(dict(live)) == len(live), "two messages of one slot"
    mask = lives.mask(np.array(slots, np.int64), np.arange(len(slots), dtype=np.int64) * SIZE)
    assert [number for number in range(len(slots)) if not mask[number]] == [number for _, number in live]
    return dict(live)


def _settled(slots: list[int], units: dict[int, int] | None = None) -> dict[int, int]:
    return _live(slots, superseded(_rows(slots), _held(units or {})))


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.sets(st.integers(0, 8)))
def test_the_newest_life_has_its_slots(lengths: list[int], lost: set[int]) -> None:
    """Whether the queue is there, lost, or lost in part."""
    slots = [slot for length in lengths for slot in range(length)]
    begin = len(slots) - lengths[-1]
    expected = {slot: begin + slot for slot in range(lengths[-1])}
    assert _settled(slots) == expected
    assert _settled(slots, expected) == expected
    assert _settled(slots, {slot: number for slot, number in expected.items() if slot not in lost}) == expected
    deleted = superseded(_rows(slots), _held({})).superseded
    assert all(one.is_deleted for one in deleted)


@given(st.integers(1, 500), st.integers(1, 8), st.integers(1, 8))
def test_an_old_life_that_expired_in_part(first: int, old: int, new: int) -> None:
    slots = [*range(first, first + old), *range(new)]
    assert _settled(slots) == {slot: old + slot for slot in range(new)}


def test_a_queue_that_leads_to_the_old_life_is_given_to_the_new_one() -> None:
    """As a broker leaves it that built a lost queue again."""
    slots = [0, 1, 2, 3, 4, 0, 1, 2]
    assert _settled(slots, {slot: slot for slot in range(5)}) == {0: 5, 1: 6, 2: 7}


@pytest.mark.parametrize("wrong", [0, 3, 98])
@pytest.mark.parametrize("at", [50, 99])
def test_one_wrong_queue_offset_is_no_new_life(at: int, wrong: int) -> None:
    """No checksum covers it. The message that has the slot keeps it."""
    slots = [wrong if number == at else number for number in range(100)]
    right = {number: number for number in range(100) if number != at or number == wrong}
    assert _settled(slots, {number: number for number in range(100)}) == right
    if 0 < wrong < at - 1:  # with the queue lost, too
        assert _settled(slots) == right


def test_offsets_that_were_given_twice() -> None:
    """A broker that lost the queue's last units gave their offsets again, to two messages: the queue leads to these."""
    slots = [0, 1, 2, 3, 4, 3, 4]
    lives = superseded(_rows(slots), _held({0: 0, 1: 1, 2: 2, 3: 5, 4: 6}))
    assert _live(slots, lives) == {0: 0, 1: 1, 2: 2, 3: 5, 4: 6}
    assert [(one.slot_begin, one.slot_end, one.is_deleted) for one in lives.superseded] == [(3, 5, False)]
    assert _settled(slots) == {0: 0, 1: 1, 2: 2, 3: 5, 4: 6}
    assert _settled(slots, {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}


@pytest.mark.parametrize("slots", [[0, 0, 1, 2], [0, 1, 2, 2, 3, 4], [0, 1, 2, 3, 2, 3, 4, 5]])
def test_a_message_once_more_takes_nothing_from_those_after_it(slots: list[int]) -> None:
    """The copy and what follows it count up by one, as a new life would; the queue leads to the first."""
    units: dict[int, int] = {}
    for number, slot in enumerate(slots):
        units.setdefault(slot, number)
    assert _settled(slots, units) == units


def test_a_new_life_whose_first_messages_are_in_damage() -> None:
    """The queue's units of them say how far down it begins."""
    rows = Stretches()
    rows.add(Stretch(0, 5, 0, 4 * SIZE))
    rows.add(Stretch(2, 4, 20 * SIZE, 21 * SIZE))  # its slots 0 and 1 lie between
    lives = superseded(rows, _held({0: 10, 1: 11, 2: 20, 3: 21}))
    assert [(*one[:2], one.is_deleted) for one in lives.superseded] == [(0, 5, True)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=6), st.data())
def test_no_good_unit_goes_to_an_older_message(stretches: list[tuple[int, int]], data: st.DataObject) -> None:
    slots = [slot for first, length in stretches for slot in range(first, first + length)]
    of_slot: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        of_slot.setdefault(slot, []).append(number)
    units = {slot: data.draw(st.sampled_from(numbers)) for slot, numbers in of_slot.items() if data.draw(st.booleans())}
    found = _settled(slots, units)
    for slot, number in units.items():
        assert found.get(slot, 1 << 62) >= number
    ordered = sorted(slots) == slots and len(set(slots)) == len(slots)
    assert not ordered or found == {slot: number for number, slot in enumerate(slots)}


@given(st.lists(st.integers(0, 9), max_size=20))
def test_every_slot_that_stays_has_one_message(slots: list[int]) -> None:
    found = _settled(slots)
    assert bool(found) == bool(slots)
    assert all(slots[number] == slot for slot, number in found.items())
    for before, after in itertools.pairwise(sorted(found)):
        assert before < after
