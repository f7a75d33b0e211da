"""Queues mended and written many units at a time, held against the same one unit at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import Reason
from rmqctl.store.compare.queues import has_batch_slot
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.journal.plan import WriteRange
from rmqctl.store.log.implied import UNIT, Units, consecutive
from rmqctl.store.log.survey import LogSurvey
from rmqctl.store.log.walk import Damage
from rmqctl.store.queues.consumequeue import PLACEHOLDER_SIZE, BatchConsumeQueue, ConsumeQueue, QueueUnit, ext_address
from rmqctl.store.recover.queues import BatchConsumeQueueMend, ConsumeQueueMend, Gone, gone_mask
from rmqctl.store.recover.rebuild import QueueWriter
from tests.quick import examples
from tests.store.recover.mend.plain_mend import PlainMend

PER_FILE = 10
FILE_SIZE = PER_FILE * 20
MESSAGE = 200
CODE = 7
EMPTY = bytes(20)


def _packed(unit: QueueUnit) -> bytes:
    return CONSUMEQUEUE_UNIT.struct.pack(unit.physical_offset, unit.size, unit.tags_code)


def _units(units: list[QueueUnit]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Units]:
    packed = b"".join(_packed(unit) for unit in units)
    return np.array([unit.queue_offset for unit in units], np.int64), np.frombuffer(packed, UNIT)


def _of_slots(slots: list[int]) -> list[QueueUnit]:
    return [QueueUnit(slot, 5000 + number * MESSAGE, MESSAGE, CODE) for number, slot in enumerate(slots)]


# stretches that follow one another, with jumps, repeats and wild offsets between them
STRETCHES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 45), st.sampled_from([-1, 10**6, (1 << 63) - 2, -(1 << 63)])), st.integers(1, 15)
    ),
    max_size=6,
).map(
    lambda stretches: _of_slots(
        [slot for first, length in stretches for slot in range(first, min(first + length, 1 << 63))]
    )
)
SLOT_BYTES = st.one_of(
    st.just(EMPTY),
    st.just(CONSUMEQUEUE_UNIT.struct.pack(0, PLACEHOLDER_SIZE, 0)),
    st.binary(min_size=20, max_size=20),
    st.integers(0, 40).map(lambda number: _packed(_of_slots([0] * 41)[number])),
    st.integers(0, 499).map(lambda place: CONSUMEQUEUE_UNIT.struct.pack(place * 10, MESSAGE, CODE)),
    st.tuples(st.integers(0, 40), st.integers(0, 3)).map(
        lambda pair: CONSUMEQUEUE_UNIT.struct.pack(5000 + pair[0] * MESSAGE, MESSAGE, ext_address(pair[1]))
    ),
)
FILES = st.dictionaries(st.integers(0, 45), SLOT_BYTES, max_size=30)


def _write(folder: Path, slots: dict[int, bytes], length: int) -> None:
    folder.mkdir(parents=True)
    for first in {slot - slot % PER_FILE for slot in slots}:
        data = b"".join(slots.get(slot, EMPTY) for slot in range(first, first + PER_FILE))
        (folder / f"{first * 20:020d}").write_bytes(data[:length])


def _mended(
    kind: type[ConsumeQueueMend], folder: Path, add: Callable[[ConsumeQueueMend], None]
) -> tuple[list[object], tuple[int, int, int]]:
    descriptors = Descriptors()
    queue = ConsumeQueue("T", 0, folder, FILE_SIZE, descriptors)
    queue.load()
    mend = kind(queue, folder / "ext", FILE_SIZE, descriptors, lambda offset: offset < 5000)
    add(mend)
    mend.finish()
    descriptors.close()
    written = [(one.describe(folder), getattr(one, "data", None)) for one in mend.plan.operations]
    return [*written], (mend.added, mend.removed, mend.conflicts)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES, STRETCHES, st.integers(0, FILE_SIZE), st.lists(st.integers(0, 60), max_size=3))
def test_many_units_are_planned_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    slots: dict[int, bytes],
    units: list[QueueUnit],
    cut: int,
    edges: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("queue") / "T" / "0"
    _write(folder, slots, FILE_SIZE - cut if cut % 3 == 0 else FILE_SIZE)

    def one_by_one(mend: ConsumeQueueMend) -> None:
        for unit in units:
            mend.add(unit)

    def many(mend: ConsumeQueueMend) -> None:
        ends = [0, *sorted(min(edge, len(units)) for edge in edges), len(units)]
        for begin, end in itertools.pairwise(ends):
            mend.add_units(*_units(units[begin:end]))

    expected = _mended(PlainMend, folder, one_by_one)
    assert _mended(ConsumeQueueMend, folder, one_by_one) == expected
    assert _mended(ConsumeQueueMend, folder, many) == expected


def test_long_queues_are_planned_in_the_same_pieces(tmp_path: Path) -> None:
    units = _of_slots([*range(9000), *range(9100, 30_000)])
    plans = []
    for kind in (PlainMend, ConsumeQueueMend):
        queue = ConsumeQueue("T", 0, tmp_path, 10_000 * 20, Descriptors())
        queue.load()
        mend = kind(queue, tmp_path / "ext", 10_000 * 20, Descriptors(), lambda offset: False)
        if kind is PlainMend:
            for unit in units:
                mend.add(unit)
        else:
            mend.add_units(*_units(units))
        mend.finish()
        plans.append(mend.plan.operations)
    assert plans[0] == plans[1]
    assert len(plans[0]) == 3 + 6


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STRETCHES, st.booleans(), st.lists(st.integers(0, 60), max_size=3))
def test_many_units_are_written_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, units: list[QueueUnit], is_batch: bool, edges: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("queue")
    ends = [0, *sorted(min(edge, len(units)) for edge in edges), len(units)]
    size = 46 * PER_FILE + 7 if is_batch else FILE_SIZE
    single, many = QueueWriter(folder / "single", is_batch, size), QueueWriter(folder / "many", is_batch, size)
    for unit in units:
        single.add(unit)
    for begin, end in itertools.pairwise(ends):
        many.add_units(*_units(units[begin:end]))
    single.flush()
    many.flush()
    contents = [{path.name: path.read_bytes() for path in (folder / name).glob("*")} for name in ("single", "many")]
    assert contents[0] == contents[1]
    assert single.conflicts == many.conflicts


def test_a_wild_queue_offset_does_not_fill_the_disk(tmp_path: Path) -> None:
    writer = QueueWriter(tmp_path / "0", False, FILE_SIZE)
    units = _of_slots([0, 1, 1 << 40, 2])
    writer.add_units(*_units(units))
    writer.flush()
    [file] = (tmp_path / "0").iterdir()
    assert writer.conflicts == 1
    assert file.read_bytes().rstrip(b"\0") == b"".join(map(_packed, (units[0], units[1], units[3])))


# queue offset and number of messages; what no checksum covers may be anything
BATCHES = st.lists(st.tuples(st.integers(-2, 60), st.sampled_from([1, 3, 3, 7, 0, -1, 0x7FFF, 0x8000, 1 << 40])))


@given(BATCHES)
def test_batches_get_the_same_slots_written_anew_as_mended(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("batches")
    writer = QueueWriter(folder / "0", True, 46 * PER_FILE)
    queue = BatchConsumeQueue("T", 0, folder / "1", 46 * PER_FILE, Descriptors())
    queue.load()
    mend = BatchConsumeQueueMend(queue, 46 * PER_FILE, Descriptors(), lambda offset: False)
    for number, (queue_offset, size) in enumerate(batches):
        unit = QueueUnit(queue_offset, number * MESSAGE, MESSAGE, CODE, 5, size)
        writer.add(unit)
        mend.add(unit)
    writer.flush()
    mend.finish()
    written = b"".join(path.read_bytes() for path in sorted((folder / "0").glob("*")))
    planned = b"".join(
        one.data for one in mend.plan.operations if isinstance(one, WriteRange) and isinstance(one.data, bytes)
    )
    assert (written.rstrip(b"\0"), writer.conflicts) == (planned.rstrip(b"\0"), mend.conflicts)


@pytest.mark.parametrize(("size", "has_slot"), [(-1, False), (0, False), (1, True), (0x7FFF, True), (0x8000, False)])
def test_a_batch_of_so_many_has_a_slot(size: int, has_slot: bool) -> None:
    assert has_batch_slot(QueueUnit(7, 0, MESSAGE, CODE, 5, size), 7) == has_slot


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20), st.integers(0, 5))
def test_stretches_cover_all(slots: list[int], repeat: int) -> None:
    slots = [slot + step for slot in slots for step in range(repeat) if slot + step < 1 << 63]
    found = consecutive(np.array(slots, np.int64))
    assert [slot for begin, end in found for slot in slots[begin:end]] == slots
    for begin, end in found:
        assert end > begin
        first = slots[begin]
        # numbers wrap behind the largest one
        assert all((slots[at] - first - (at - begin)) % (1 << 64) == 0 for at in range(begin, end))
        assert end == len(slots) or (slots[end] - slots[end - 1]) % (1 << 64) != 1  # none could be longer


@given(
    st.lists(st.integers(0, 400), max_size=30),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=4),
    st.integers(-5, 50),
)
def test_gone_for_many(offsets: list[int], gaps: list[tuple[int, int]], first: int) -> None:
    survey, at = LogSurvey(0, 0), 0
    for gap, length in gaps:
        begin = at + gap
        at = begin + length
        survey.tolerated.append(Damage(begin, at, Reason.SIZE, "", ""))
    gone = Gone(first, survey)
    wanted = np.array([*offsets, -1, 1 << 62], np.int64)
    expected = [gone(offset) for offset in wanted.tolist()]
    assert gone.mask(wanted).tolist() == expected
    assert gone_mask(gone.__call__, wanted).tolist() == expected


def test_a_long_queue_is_written_as_it_comes(tmp_path: Path) -> None:
    """A file of a broker has six megabytes: of so many queues at once only little can wait in memory."""
    per_file = 30_000
    writer = QueueWriter(tmp_path / "0", False, per_file * 20)
    units = _of_slots([*range(20_000)])
    for begin in range(0, len(units), 5000):
        writer.add_units(*_units(units[begin : begin + 5000]))
    [file] = (tmp_path / "0").iterdir()
    expected = b"".join(map(_packed, units))
    there = len(file.read_bytes().rstrip(b"\0"))
    assert len(expected) - there < 256 * 1024
    writer.flush()
    assert file.read_bytes() == expected.ljust(per_file * 20, b"\0")
