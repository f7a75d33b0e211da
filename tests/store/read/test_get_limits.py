"""How much one read of a queue gives and looks through, and what it says of units that lead to no message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import QueueUnit, pack_batch_unit
from rmqctl.store.read.filter import TagFilter
from rmqctl.store.read.frames import MessageRemovedError
from rmqctl.store.read.get import GetResult, QueueView, get_messages, units_ahead
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection, in_queue_order
from rmqctl.store.status import GetStatus
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.opened import reader
from tests.store.read.reads import reads_of
from tests.store.write.writing import SMALL, message

UNIT = CONSUMEQUEUE_UNIT.size
PLACEHOLDER = CONSUMEQUEUE_UNIT.struct.pack(0, 0x7FFFFFFF, 0)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A store with six messages of one size in one queue."""
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for number in range(6):
            store.put(message(20, properties={"TAGS": "even" if number % 2 == 0 else "uneven"[:4]}))
    return tmp_path / "s"


@pytest.fixture
def view(filled: Path) -> Iterator[QueueView]:
    with StoreFiles(filled) as files:
        yield StoreReader(files).view(StoreReader(files).queue("TopicA", 0))


def _units_of(store: Path) -> Path:
    [path] = (store / "consumequeue/TopicA/0").iterdir()
    return path


def _write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _opened(store: Path) -> QueueView:
    look = StoreReader(StoreFiles(store))
    return look.view(look.queue("TopicA", 0))


def _offsets(result: GetResult) -> list[int]:
    return [one.queue_offset for one in result.messages]


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("tags", [None, "even"])
def test_no_more_than_asked_for_but_one_at_least(view: QueueView, limit: int, tags: str | None) -> None:
    wanted = TagFilter(tags)
    every = [0, 1, 2, 3, 4, 5] if tags is None else [0, 2, 4]
    expected = every[: max(limit, 1)]
    result = get_messages(view, 0, limit, wanted)
    assert (result.status, _offsets(result), result.next_offset) == (GetStatus.FOUND, expected, expected[-1] + 1)
    stored = get_messages(view, 0, limit, wanted, frames=True)
    assert b"".join(stored.frames) == b"".join(
        get_messages(view, offset, 1, frames=True).frames[0] for offset in expected
    )
    assert (stored.status, stored.next_offset, stored.messages) == (GetStatus.FOUND, expected[-1] + 1, [])


@pytest.mark.parametrize("frames", [False, True])
def test_a_queue_of_one_message(tmp_path: Path, frames: bool) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(20))
    view = _opened(tmp_path / "s")
    for offset, status, following in (
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 1),
        (1, GetStatus.OFFSET_OVERFLOW_ONE, 1),
        (2, GetStatus.OFFSET_OVERFLOW_BADLY, 1),
    ):
        result = get_messages(view, offset, frames=frames)
        assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (status, following, 0, 1)


def test_a_queue_that_nothing_was_written_to(filled: Path) -> None:
    path = _units_of(filled)
    path.write_bytes(bytes(path.stat().st_size))
    for offset in (-1, 0, 5):
        result = get_messages(_opened(filled), offset)
        assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert (result.min_offset, result.max_offset, result.messages, result.damaged) == (0, 0, [], [])


def test_a_read_ends_where_its_bytes_are_used_up(filled: Path) -> None:
    """Also before a slot that takes none: it is told of by the next read."""
    size = next(_opened(filled).queue.units(0, 1)).size
    _write(_units_of(filled), 2 * UNIT, PLACEHOLDER)
    for most, offsets, following in ((2 * size, [0, 1], 2), (2 * size + 1, [0, 1], 3), (3 * size, [0, 1, 3], 4)):
        result = get_messages(_opened(filled), 0, max_bytes=most)
        assert (_offsets(result), result.next_offset) == (offsets, following), most
        assert [one.queue_offset for one in result.damaged] == [2] * (following > 2)


def test_no_read_gives_more_than_256_kib(tmp_path: Path) -> None:
    config = SMALL._replace(mapped_file_size_commit_log=1 << 20)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        places = [store.put(message(one)) for one in (100_000, 162_144 - 2 * 97, 0, 262_144 - 97, 262_144, 0)]
    assert all(place.physical_offset is not None for place in places)
    view = _opened(tmp_path / "s")
    for frames in (False, True):
        # the first two are exactly as much as a read gives, and so is the fourth; the fifth is more, and given whole
        following = [get_messages(view, offset, frames=frames).next_offset for offset in range(6)]
        assert following == [2, 3, 3, 4, 5, 6]


def test_neighbours_are_read_together(view: QueueView, monkeypatch: pytest.MonkeyPatch) -> None:
    assert view.queue.min_offset(0) == 0
    read = reads_of(view.log.descriptors, monkeypatch)
    assert _offsets(get_messages(view, 0)) == [0, 1, 2, 3, 4, 5]
    # their units, and the messages
    assert len(read) == 2
    read.clear()
    assert [(unit.queue_offset, ahead is not None) for unit, ahead in units_ahead(view, 1, 5, 2)] == [
        (offset, True) for offset in range(1, 5)
    ]
    assert len(read) == 3


WRONG: list[tuple[str, bytes, str, bool]] = [
    ("a slot that was never written", bytes(UNIT), "was never written", False),
    ("a placeholder", PLACEHOLDER, "is a placeholder", False),
    ("nonsense", CONSUMEQUEUE_UNIT.struct.pack(-5, 100, 0), "holds what no unit has", False),
    ("a size below zero", CONSUMEQUEUE_UNIT.struct.pack(5, -1, 0), "holds what no unit has", False),
    ("a place where no message begins", CONSUMEQUEUE_UNIT.struct.pack(1, 100, 0), "leads to no message: ", True),
    ("a place behind the log", CONSUMEQUEUE_UNIT.struct.pack(1 << 40, 100, 0), "leads to no message: ", True),
]


@pytest.mark.parametrize(("_what", "unit", "said", "is_written"), WRONG)
def test_a_unit_that_leads_to_no_message_is_told_with_its_place(
    filled: Path, _what: str, unit: bytes, said: str, is_written: bool
) -> None:
    path = _units_of(filled)
    _write(path, 3 * UNIT, unit)
    for frames in (False, True):
        result = get_messages(_opened(filled), 3, frames=frames)
        assert (result.status, result.next_offset) == (GetStatus.FOUND, 6)
        [damaged] = result.damaged
        place = CONSUMEQUEUE_UNIT.unpack_from(unit, 0)[0]
        assert (damaged.queue_offset, damaged.physical_offset) == (3, place)
        assert damaged.error.message.startswith(f"unit 3 of 'TopicA' queue 0 {said}")
        assert damaged.error.file == str(path)
        assert damaged.error.physical_offset == (place if is_written else None)
        if not is_written:
            assert damaged.error.hint == "`rmqctl rebuild --queues` rebuilds the queues from the commitlog"
    # it is not counted among those that are asked for
    after = get_messages(_opened(filled), 3, 1)
    assert (after.status, _offsets(after), after.next_offset) == (GetStatus.FOUND, [4], 5)


def test_where_no_unit_leads_to_a_message_that_is_not_the_end_of_the_queue(filled: Path) -> None:
    _write(_units_of(filled), 3 * UNIT, 3 * PLACEHOLDER)
    result = get_messages(_opened(filled), 3)
    assert (result.status, result.next_offset, result.messages) == (GetStatus.MESSAGE_WAS_REMOVING, 6, [])
    assert [one.queue_offset for one in result.damaged] == [3, 4, 5]
    # what is passed over by its tag is not looked at
    passed = get_messages(_opened(filled), 2, message_filter=TagFilter("nobody"))
    assert (passed.status, passed.next_offset, passed.damaged) == (GetStatus.NO_MATCHED_MESSAGE, 6, [])


def test_a_unit_of_another_size_or_place_than_its_message_is_told(filled: Path) -> None:
    view = _opened(filled)
    units = list(view.queue.units(0))
    for unit, said in (
        (units[3]._replace(size=units[3].size + 1), f"says {units[3].size + 1} bytes, the message has {units[3].size}"),
        (units[3]._replace(size=units[3].size - 1), f"says {units[3].size - 1} bytes, the message has {units[3].size}"),
        (units[3]._replace(physical_offset=units[4].physical_offset), "points at message 4 of 'TopicA' queue 0"),
    ):
        with pytest.raises(CorruptError) as caught:
            view.message_of(unit)
        assert caught.value.message == f"unit 3 of 'TopicA' queue 0 {said}"
        assert caught.value.physical_offset == unit.physical_offset
        assert caught.value.hint == "`rmqctl rebuild --queues` rebuilds the queues from the commitlog"
    assert view.message_of(units[3]).queue_offset == 3
    with pytest.raises(CorruptError) as caught:
        view.message_of(QueueUnit(1 << 30, 0, 100, 0))
    assert caught.value.file == str(filled / "consumequeue/TopicA/0"), "no file has that unit"


def test_the_first_message_of_the_log_is_damaged_not_removed(filled: Path) -> None:
    """What lies before the beginning of the log was removed; what lies right there was not."""
    [log] = (filled / "commitlog").iterdir()
    _write(log, 90, b"\xff")
    result = get_messages(_opened(filled), 0)
    assert (_offsets(result), [one.physical_offset for one in result.damaged]) == ([1, 2, 3, 4, 5], [0])
    assert "body CRC" in result.damaged[0].error.message


def test_units_of_messages_that_were_removed_are_no_damage(golden_store: GoldenStore) -> None:
    """They may stand behind the queue's beginning, where units in between are in no order."""
    store = golden_store("first-gone")
    rows = [row for row in truth("first-gone").queues if row["topic"] == "OrderTopic" and row["queueId"] == 1]
    low, high = rows[0]["min"], rows[0]["max"]
    assert high - low > 5
    [path] = [one for one in (store / "consumequeue/OrderTopic/1").iterdir() if int(one.name) <= (low + 2) * UNIT][-1:]
    _write(path, (low + 2) * UNIT - int(path.name), CONSUMEQUEUE_UNIT.struct.pack(100, 200, 0))
    with StoreFiles(store) as files:
        look = StoreReader(files)
        result = look.get("OrderTopic", 1, low)
        assert (_offsets(result)[:3], result.damaged) == ([low, low + 1, low + 3], [])


def test_batches_are_looked_through_from_where_is_asked(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    path, *others = sorted((store / "batchconsumequeue/InnerBatchTopic/0").iterdir())
    for other in others:
        other.unlink()
    size, limit, begin = path.stat().st_size, 400, 1000
    for base, looked_at in ((begin + limit - 1, True), (begin + limit, False)):
        units = [QueueUnit(one, 0, 100, 0, batch_size=2) for one in (0, begin, base)]
        path.write_bytes(b"".join(map(pack_batch_unit, units)).ljust(size, b"\0"))
        with StoreFiles(store) as files:
            result = StoreReader(files).get("InnerBatchTopic", 0, begin, limit, tags="nobody")
            assert result.status == GetStatus.NO_MATCHED_MESSAGE
            assert result.next_offset == (base + 2 if looked_at else begin + 2)
            # offsets between batches may be nobody's
            result = StoreReader(files).get("InnerBatchTopic", 0, begin - 5, limit, tags="nobody")
            assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, begin + 2)


def test_a_long_gap_between_batches_is_passed_at_once(golden_store: GoldenStore) -> None:
    """Whoever asked again from the same offset would come no further."""
    store = golden_store("innerbatch")
    path, *others = sorted((store / "batchconsumequeue/InnerBatchTopic/0").iterdir())
    for other in others:
        other.unlink()
    units = [QueueUnit(one, 0, 100, 0, batch_size=2) for one in (0, 1000)]
    path.write_bytes(b"".join(map(pack_batch_unit, units)).ljust(path.stat().st_size, b"\0"))
    with StoreFiles(store) as files:
        for offset in (2, 3, 500):
            result = StoreReader(files).get("InnerBatchTopic", 0, offset)
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 1000)
            assert (result.messages, result.damaged) == ([], [])


@pytest.mark.parametrize("name", ["cqext", "v4-cqext"])
def test_codes_that_stand_in_the_ext_queue_are_those_of_the_tags(name: str, golden_store: GoldenStore) -> None:
    rows = {
        row["queueOffset"]: row["tags"]
        for row in truth(name).messages
        if (row["topic"], row["queueId"]) == ("%DLQ%GroupA", 0)
    }
    look = reader(name)
    queue = look.queue("%DLQ%GroupA", 0)
    units = list(queue.units(0))
    view, without = look.view(queue), look.view_without_ext(queue)
    addressed = [unit for unit in units if unit.tags_code < -(1 << 31)]
    assert addressed
    for unit in units:
        expected = java_hash(rows[unit.queue_offset]) if rows[unit.queue_offset] else 0
        assert view.resolved_code(unit) == expected
        assert without.resolved_code(unit) == (None if unit in addressed else expected)
    assert view.resolved_code(addressed[0]._replace(tags_code=-(1 << 63) + (1 << 40))) is None


def test_a_multi_dispatch_message_is_in_each_of_its_queues_and_in_no_other() -> None:
    look = reader("lmq")
    row = next(row for row in truth("lmq").messages if len(row["cq"] or []) > 2)
    message = look.lookup(row["phyOffset"])
    for unit in row["cq"]:
        view = look.view(look.queue(unit["topic"], unit["queueId"]))
        [found] = view.queue.units(unit["offset"], unit["offset"] + 1)
        assert view.message_of(found) == message
        with pytest.raises(CorruptError, match="points at message"):
            view.message_of(found._replace(queue_offset=found.queue_offset + 1))


def test_messages_that_a_cleaner_takes_away_meanwhile_are_no_damage(tmp_path: Path) -> None:
    config = SMALL._replace(mapped_file_size_commit_log=1024)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        places = [store.put(message(200)).physical_offset or 0 for _ in range(6)]
    assert places[-1] > 1024
    left = [number for number, place in enumerate(places) if place >= 1024]
    # each has seen the log as it was
    views = [_opened(tmp_path / "s") for _ in range(4)]
    assert [view.log.min_offset for view in views] == [0] * 4
    units = list(views[0].queue.units(0))
    views[0].log.files[0].path.unlink()
    with pytest.raises(MessageRemovedError):
        views[0].message_of(units[0])
    result = get_messages(views[1], 0)
    assert (result.status, result.next_offset, result.damaged, _offsets(result)) == (GetStatus.FOUND, 6, [], left)
    stored = get_messages(views[2], 0, frames=True)
    assert (stored.status, stored.next_offset, stored.damaged) == (GetStatus.FOUND, 6, [])
    size = units[-1].size
    assert len(b"".join(stored.frames)) == len(left) * size
    told: list[CorruptError] = []
    found = in_queue_order(iter([views[3]]), Selection(), Events(damage=told.append))
    assert ([one.queue_offset for one in found], told) == (left, [])


def test_of_what_is_not_in_memory_a_read_gives_less(filled: Path) -> None:
    [size] = {one.size for one in _opened(filled).queue.units(0, 6)}
    end = _opened(filled).log.max_offset
    for memory, count, expected in ((end, 2, 6), (end - 1, 2, 2), (end - 1, 9, 6)):
        view = _opened(filled)
        view = view._replace(limits=view.limits._replace(memory_bytes=memory, disk_count=count))
        assert len(get_messages(view, 0).messages) == expected
        assert len(get_messages(view, 3).messages) == 3
    view = view._replace(limits=view.limits._replace(disk_bytes=size))
    assert len(get_messages(view, 0).messages) == 1
    assert len(get_messages(view, 0, frames=True).frames[0]) == size
