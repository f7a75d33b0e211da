"""What is found in parts of the log, put together, is what is found in all of it."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.store.compare.lives import Slots, Stretch, Stretches
from rmqctl.store.compare.queues import QueuesTally, QueueTally, SlotState

_UNITS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1000), st.integers(1, 50)), max_size=30)


def _stretches(units: list[tuple[int, int, int]]) -> Stretches:
    made = Stretches()
    for slot, offset, size in units:
        made.add(Stretch(slot, slot + 1, offset, offset, 1, size))
    return made


@given(_UNITS, st.data())
def test_stretches_do_not_depend_on_the_cuts(units: list[tuple[int, int, int]], data: st.DataObject) -> None:
    whole = _stretches(units)
    cuts = sorted({0, len(units), *data.draw(st.lists(st.integers(0, len(units))))})
    merged = Stretches()
    for begin, end in itertools.pairwise(cuts):
        merged.merge(pickle.loads(pickle.dumps(_stretches(units[begin:end]))))
    assert merged == whole
    assert list(merged) == list(whole)
    assert (whole.units, whole.bytes) == (len(units), sum(size for _, _, size in units))
    assert _numbers(whole.slots()) == {slot for slot, _, _ in units}


_QUEUES = st.dictionaries(
    st.tuples(st.sampled_from(["A", "B", "\ud800", ""]), st.integers(0, (1 << 31) - 1)),
    st.tuples(st.booleans(), st.dictionaries(st.sampled_from(SlotState), _UNITS, max_size=4)),
    max_size=5,
)


@given(_QUEUES)
def test_all_queues_travel_as_columns(
    queues: dict[tuple[str, int], tuple[bool, dict[SlotState, list[tuple[int, int, int]]]]],
) -> None:
    """With every queue and state in its order, those without any stretch too, and still open to more."""
    whole = QueuesTally()
    for key, (is_batch, states) in queues.items():
        whole.queues[key] = QueueTally(is_batch)
        whole.queues[key].states = {state: _stretches(units) for state, units in states.items()}
    there = pickle.loads(pickle.dumps(whole))
    assert there.queues == whole.queues
    assert [(key, list(tally.states)) for key, tally in there.queues.items()] == [
        (key, list(tally.states)) for key, tally in whole.queues.items()
    ]
    assert all(type(state) is SlotState for tally in there.queues.values() for state in tally.states)
    there.merge(pickle.loads(pickle.dumps(whole)))
    whole.merge(pickle.loads(pickle.dumps(whole)))
    assert there.queues == whole.queues


@given(_UNITS, st.data())
def test_lives_do_not_depend_on_the_cuts(units: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Queue offsets that go back begin another life: what is before and after it is never one stretch."""

    def tally(part: list[tuple[int, int, int]]) -> QueueTally:
        made = QueueTally(False)
        for slot, offset, size in part:
            made.add(SlotState.IMPLIED, Stretch(slot, slot + 1, offset, offset, 1, size))
            state = SlotState.MISSING if size % 2 else SlotState.MATCHED
            made.add(state, Stretch(slot, slot + 1, offset, offset, 1, size))
        return made

    cuts = sorted({0, len(units), *data.draw(st.lists(st.integers(0, len(units))))})
    merged = QueueTally(False)
    for begin, end in itertools.pairwise(cuts):
        merged.merge(tally(units[begin:end]))
    whole = tally(units)
    assert {state: list(whole.of(state)) for state in SlotState} == {
        state: list(merged.of(state)) for state in SlotState
    }
    back = sum(after[0] <= before[0] for before, after in itertools.pairwise(units))
    assert whole.life == back
    for state in SlotState:
        for stretch in whole.of(state):
            assert stretch.slot_end - stretch.slot_begin == stretch.units


def _numbers(slots: Slots) -> set[int]:
    pairs = zip(slots.begins.tolist(), slots.ends.tolist(), strict=True)
    return {number for begin, end in pairs for number in range(begin, end)}


_INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=8)


@given(_INTERVALS, st.integers(0, 40), st.integers(0, 40))
def test_slots_are_a_set(intervals: list[tuple[int, int]], begin: int, end: int) -> None:
    begins = np.array([low for low, _ in intervals], np.int64)
    slots = Slots.of(begins, begins + np.array([length for _, length in intervals], np.int64))
    known = {number for low, length in intervals for number in range(low, low + length)}
    assert _numbers(slots) == known
    everything = np.arange(50)
    assert set(everything[slots.contain(everything)].tolist()) == known
    asked = set(range(begin, end))
    assert {number for low, high in slots.common(begin, end) for number in range(low, high)} == asked & known
    assert {number for low, high in slots.gaps(begin, end) for number in range(low, high)} == asked - known
    assert all(low < high for low, high in [*slots.common(begin, end), *slots.gaps(begin, end)])
