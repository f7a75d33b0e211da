"""Queues of 46-byte units: found by search, ended by the first unit that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.queues.consumequeue import BATCH_UNIT_SIZE as UNIT_SIZE
from rmqctl.store.queues.consumequeue import BatchConsumeQueue, QueueUnit, offset_by_time, pack_batch_unit
from tests.goldens import truth
from tests.opened import reader

FILE_SIZE = 4 * UNIT_SIZE


def _queue(folder: Path, file_size: int | None = FILE_SIZE) -> BatchConsumeQueue:
    queue = BatchConsumeQueue("T", 0, folder, file_size, Descriptors())
    queue.load()
    return queue


def _units(count: int, batch: int = 3) -> list[QueueUnit]:
    return [
        QueueUnit(number * batch, number * 1000, 500, 7, 1_700_000_000_000 + number, batch) for number in range(count)
    ]


def _written(folder: Path, units: list[QueueUnit]) -> BatchConsumeQueue:
    queue = _queue(folder)
    for unit in units:
        queue.append(unit)
    return queue


def test_units_of_the_golden() -> None:
    messages = [row for row in truth("innerbatch").messages if row["topic"] == "InnerBatchTopic"]
    assert len(messages) == 30
    for queue_id, end in ((0, 57), (1, 58)):
        queue = reader("innerbatch").files.queues.find("InnerBatchTopic", queue_id)
        assert isinstance(queue, BatchConsumeQueue)
        rows = [row for row in messages if row["queueId"] == queue_id]
        assert queue.max_offset == end
        units = list(queue.units(0))
        assert [(unit.queue_offset, unit.physical_offset, unit.size, unit.store_timestamp) for unit in units] == [
            (row["queueOffset"], row["phyOffset"], row["storeSize"], row["storeTimestamp"]) for row in rows
        ]
        assert [unit.batch_size for unit in units] == [int(row["properties"]["INNER_NUM"]) for row in rows]
        # packed again they are the bytes of the golden's files
        files = b"".join(path.read_bytes() for path in sorted(queue.directory.iterdir()))
        data = b"".join(map(pack_batch_unit, units))
        assert files == data.ljust(len(files), b"\0")


def test_every_offset_of_a_batch_finds_its_unit(tmp_path: Path) -> None:
    units = _units(10)
    queue = _written(tmp_path / "q", units)
    for seen in (queue, _queue(tmp_path / "q")):
        for offset in range(30):
            assert seen.unit(offset) == units[offset // 3]
        assert (seen.unit(30), seen.unit(-1), seen.max_offset) == (None, None, 30)
        assert list(seen.units(4, 9)) == units[1:3]
        assert list(seen.units(29)) == units[9:]
        assert list(seen.units_by_file()) == [units[:4], units[4:8], units[8:]]


def test_units_of_a_range_are_those_that_reach_into_it(tmp_path: Path) -> None:
    units = _units(4)
    queue = _written(tmp_path / "q", units)
    for begin, end, first, stop in ((0, 12, 0, 4), (0, 1, 0, 1), (2, 4, 0, 2), (3, 6, 1, 2), (5, None, 1, 4),
                                    (12, None, 4, 4)):  # fmt: skip
        assert list(queue.units(begin, end)) == units[first:stop], (begin, end)
    # nothing reaches into a range without an offset, in the middle of a batch either
    for begin, end in ((4, 4), (3, 3), (5, 4), (0, 0)):
        assert list(queue.units(begin, end)) == [], (begin, end)


def test_offset_between_units(tmp_path: Path) -> None:
    first, second = QueueUnit(0, 0, 500, 0, 1, 2), QueueUnit(10, 1000, 500, 0, 1, 2)
    queue = _written(tmp_path / "q", [first, second])
    assert (queue.unit(1), queue.unit(2), queue.unit(9), queue.unit(10)) == (first, None, None, second)


def test_minimum(tmp_path: Path) -> None:
    queue = _written(tmp_path / "q", _units(10))
    assert [queue.min_offset(minimum) for minimum in (0, 1, 1000, 8999, 9000, 9001)] == [0, 3, 3, 27, 27, 30]
    assert _queue(tmp_path / "none").min_offset(5) == 0


@pytest.mark.parametrize(
    "bad",
    [
        QueueUnit(6, -1, 500, 0, 1, 3),
        QueueUnit(6, 2000, 0, 0, 1, 3),
        QueueUnit(-6, 2000, 500, 0, 1, 3),
        QueueUnit(6, 2000, 500, 0, 1, 0),
        QueueUnit(6, 2000, 500, 0, 1, -3),
    ],
)
def test_the_first_unit_that_is_none_ends_the_queue(tmp_path: Path, bad: QueueUnit) -> None:
    units = _units(6)
    _written(tmp_path / "q", units)
    file = tmp_path / "q" / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[2 * UNIT_SIZE : 3 * UNIT_SIZE] = pack_batch_unit(bad)
    file.write_bytes(data)
    queue = _queue(tmp_path / "q")
    assert (list(queue.units(0)), queue.max_offset) == (units[:2], 6)


def test_files_roll(tmp_path: Path) -> None:
    _written(tmp_path / "q", _units(9))
    assert [path.name.lstrip("0") or "0" for path in sorted((tmp_path / "q").iterdir())] == ["0", "184", "368"]
    assert {path.stat().st_size for path in (tmp_path / "q").iterdir()} == {FILE_SIZE}


def test_appending_goes_on_after_the_first_file_is_gone(tmp_path: Path) -> None:
    units = _units(12)
    _written(tmp_path / "q", units[:9])
    (tmp_path / "q" / ("0" * 20)).unlink()
    queue = _queue(tmp_path / "q")
    for unit in units[9:]:
        queue.append(unit)
    assert list(_queue(tmp_path / "q").units(0)) == units[4:]


def test_units_are_never_overwritten(tmp_path: Path) -> None:
    queue = _written(tmp_path / "q", _units(3))
    with pytest.raises(WriteFailedError, match="does not follow"):
        queue.append(QueueUnit(8, 9000, 500, 0, 1, 1))
    assert _queue(tmp_path / "q").max_offset == 9


def test_file_cut_in_the_middle_of_a_unit(tmp_path: Path) -> None:
    _written(tmp_path / "q", _units(3))
    file = tmp_path / "q" / ("0" * 20)
    file.write_bytes(file.read_bytes()[: 2 * UNIT_SIZE + 20])
    assert list(_queue(tmp_path / "q").units(0)) == _units(2)


def test_a_time_in_a_queue_whose_batches_have_all_expired(tmp_path: Path) -> None:
    """The next batch is the only answer there is, as in a queue of single messages."""
    queue = _written(tmp_path / "q", _units(10))
    assert queue.max_offset == 30
    for moment in (0, 1_700_000_000_005, 1 << 62):
        assert offset_by_time(queue, moment, "lower", 30, lambda unit: None) == 30
        assert offset_by_time(queue, moment, "upper", 30, lambda unit: None) == 30
    assert offset_by_time(queue, 1_700_000_000_005, "lower", 0, lambda unit: None) == 15


def test_a_file_that_is_removed_while_the_queue_is_read(tmp_path: Path) -> None:
    """Its units are left out; those of the other files are there."""
    _written(tmp_path / "q", _units(10))
    queue = _queue(tmp_path / "q")
    min((tmp_path / "q").iterdir()).unlink()
    assert [unit.queue_offset for unit in queue.units(0)] == [12, 15, 18, 21, 24, 27]


def test_a_queue_of_which_no_size_is_known_gets_the_default(tmp_path: Path) -> None:
    queue = _queue(tmp_path / "q", None)
    queue.append(_units(1)[0])
    [file] = (tmp_path / "q").iterdir()
    assert file.stat().st_size == 300_000 * UNIT_SIZE
    assert [unit.queue_offset for unit in _queue(tmp_path / "q").units(0)] == [0]


@pytest.mark.parametrize("minimum", [0, 1, 3, 12, 15, 28, 30])
def test_every_time_around_every_batch(tmp_path: Path, minimum: int) -> None:
    """In the newest file that begins at or before the time, else the first; what has expired is not there."""
    units = [unit._replace(store_timestamp=number * 10) for number, unit in enumerate(_units(10))]
    queue = _written(tmp_path / "q", units)
    files = [[unit for unit in file if unit.queue_offset >= minimum] for file in (units[:4], units[4:8], units[8:])]
    files = [file for file in files if file]
    for moment in range(-1, 102):
        lower = upper = minimum
        if files:
            chosen = max(
                (file for file in files if file[0].store_timestamp <= moment), key=files.index, default=files[0]
            )
            before = [unit.queue_offset for unit in chosen if unit.store_timestamp <= moment]
            later = [unit.queue_offset for unit in chosen if unit.store_timestamp >= moment]
            upper = before[-1] if before else chosen[0].queue_offset
            lower = later[0] if later else chosen[-1].queue_offset
        found = [offset_by_time(queue, moment, boundary, minimum, lambda unit: None) for boundary in ("lower", "upper")]
        assert found == [lower, upper], moment
