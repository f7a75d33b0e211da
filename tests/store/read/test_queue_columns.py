"""Messages queue by queue as columns are those that are read one by one, with the same damage told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native.tables import Columns
from rmqctl.store.options import Events
from rmqctl.store.read import queue_columns
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS
from tests.opened import reader
from tests.quick import goldens_of
from tests.store.write.writing import SMALL, message

UNIT = CONSUMEQUEUE_UNIT.size
Found = tuple[list[StoredMessage], list[str]]


def _by_columns(one: StoreReader, selection: Selection) -> tuple[Found, int]:
    """What is found, with what is told of it, and how much of it came as columns."""
    messages: list[StoredMessage] = []
    told: list[str] = []
    in_columns = 0
    heard = Events(damage=lambda error: told.append(str(error)), note=told.append)
    for part in one.telling(heard).columns_in_queue_order(selection, Columns.NONE):
        if isinstance(part, MessageColumns):
            in_columns += part.rows
            messages += map(part.message, range(part.rows))
        else:
            messages.append(part)
    return (messages, told), in_columns


def _one_by_one(one: StoreReader, selection: Selection) -> Found:
    told: list[str] = []
    heard = Events(damage=lambda error: told.append(str(error)), note=told.append)
    return [*one.telling(heard).messages(selection, "queue")], told


@pytest.mark.parametrize("name", goldens_of(GOLDENS, "torn-zero", "innerbatch", "cq-lost"))
def test_of_golden_stores(name: str) -> None:
    one = reader(name)
    found, in_columns = _by_columns(one, Selection())
    assert found == _one_by_one(one, Selection())
    assert in_columns or not found[0]


@pytest.mark.parametrize(
    "selection",
    [
        Selection(begin=3, end=40),
        Selection(Criteria(tags="TagA")),
        Selection(Criteria(begin_time=1), 7),
        Selection(Criteria(queue_id=1)),
        Selection(Criteria(grep="1")),
    ],
)
def test_of_selections(selection: Selection) -> None:
    for name in ("clean", "features", "cq-short"):
        assert _by_columns(reader(name), selection)[0] == _one_by_one(reader(name), selection)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A store with 40 messages in one queue, whose files have ten units each."""
    config = SMALL._replace(mapped_file_size_consume_queue=10 * UNIT)
    with MessageStore.open(tmp_path / "s", "rw", config, create=True) as store:
        for _ in range(40):
            store.put(message(20))
    return tmp_path / "s"


def _file_of(store: Path, number: int) -> Path:
    return store / f"consumequeue/TopicA/0/{number * 10 * UNIT:020}"


def _unlink(store: Path) -> None:
    _file_of(store, 1).unlink()


def _unlink_two(store: Path) -> None:
    _unlink(store)
    _file_of(store, 2).unlink()


def _placeholder(store: Path) -> None:
    with _file_of(store, 1).open("r+b") as file:
        file.seek(3 * UNIT)
        file.write(CONSUMEQUEUE_UNIT.struct.pack(0, 0x7FFFFFFF, 0))


def _two_places_changed(store: Path) -> None:
    with _file_of(store, 2).open("r+b") as file:
        first = file.read(UNIT)
        second = file.read(UNIT)
        file.seek(0)
        file.write(second + first)


def _size_changed(store: Path) -> None:
    with _file_of(store, 2).open("r+b") as file:
        file.seek(4 * UNIT + 8)
        file.write((21).to_bytes(4, "big"))


def _body_changed(store: Path) -> None:
    [log] = (store / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    place = [found.start() for found in re.finditer(b"TopicA", data)][14]
    data[place - 3] ^= 1
    log.write_bytes(data)


@pytest.mark.parametrize("at_once", [4, 8192])
@pytest.mark.parametrize(
    "damage", [_unlink, _unlink_two, _placeholder, _two_places_changed, _size_changed, _body_changed]
)
def test_of_damaged_queues(
    filled: Path, damage: Callable[[Path], None], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_columns, "_UNITS_AT_ONCE", at_once)
    damage(filled)
    with StoreFiles(filled) as files:
        one = StoreReader(files)
        for selection in (Selection(), Selection(begin=12), Selection(begin=5, end=25), Selection(end=20)):
            found, in_columns = _by_columns(one, selection)
            assert found == _one_by_one(one, selection)
            assert in_columns
        assert len(_one_by_one(one, Selection())[0]) < 40 or damage is _two_places_changed


def test_progress_is_in_bytes_of_messages(filled: Path) -> None:
    passed: list[int] = []
    with StoreFiles(filled) as files:
        one = StoreReader(files).telling(Events(progress=passed.append))
        [*one.columns_in_queue_order(Selection(), Columns.NONE)]
        assert sum(passed) == sum(found.total_size for found in StoreReader(files).messages(Selection(), "queue"))
