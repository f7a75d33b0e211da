"""The ways to read one store: what each is asked for reaches what answers it, and what is said where nothing is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, NotFoundError
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events
from rmqctl.store.read import get
from rmqctl.store.read import query as key_query
from rmqctl.store.read import reader as module
from rmqctl.store.read.filter import Criteria, TopicFilter
from rmqctl.store.read.query import NotIndexedError
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.status import GetStatus
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.write.writing import SMALL, message

# the time of the first message; each is a second later than the one before it
BEGIN = 1_700_000_000_000


@pytest.fixture
def look(tmp_path: Path) -> Iterator[StoreReader]:
    """Eight messages of three topics: numbers 0 to 7 are their bodies' lengths, and k0 to k7 their keys."""
    times = itertools.count(BEGIN, 1000)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: next(times)) as store:
        for number, (topic, queue_id) in enumerate(
            [("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicA", 0), ("rmq_sys_x", 0), ("TopicA", 0), ("TopicB", 1),
             ("TopicA", 1)]
        ):  # fmt: skip
            properties = {"KEYS": f"k{number} all", "TAGS": "odd" if number % 2 else "even"}
            store.put(message(number, topic=topic, queue_id=queue_id, properties=properties))
    with StoreFiles(tmp_path / "s") as files:
        yield StoreReader(files)


def _times(look: StoreReader) -> dict[int, int]:
    return {len(one.body): one.store_timestamp for one in look.telling(Events(damage=_fail)).messages(Selection())}


def _fail(error: CorruptError) -> None:
    raise error


def _numbers(found: Iterator[object] | list[object]) -> list[int]:
    return [len(one.body) for one in found]  # type: ignore[attr-defined]  # messages, by which their numbers are told


def test_the_limits_are_those_of_who_answers() -> None:
    assert (module._LIMIT, module._MAX_BYTES, module._END_OF_TIME) == (
        get.DEFAULT_LIMIT,
        get.DEFAULT_MAX_BYTES,
        key_query.END_OF_TIME,
    )
    assert (key_query.DEFAULT_LIMIT, get.DEFAULT_LIMIT, get.DEFAULT_MAX_BYTES) == (32, 32, 128 * 1024 * 1024)


def test_messages_of_a_queue(look: StoreReader) -> None:
    assert _numbers(list(look.get("TopicA", 0, 0).messages)) == [0, 3, 5]
    assert _numbers(list(look.get("TopicA", 0, 1).messages)) == [3, 5]
    assert _numbers(list(look.get("TopicA", 0, 0, 2).messages)) == [0, 3]
    assert _numbers(list(look.get("TopicA", 0, 0, tags="odd").messages)) == [3, 5]
    assert _numbers(list(look.get("TopicA", 0, 0, max_bytes=300).messages)) == [0, 3]
    assert _numbers(list(look.get("TopicA", 1, 0).messages)) == [1, 7]
    nothing = look.get("TopicA", 2, 1)
    assert (nothing.status, nothing.next_offset, nothing.min_offset, nothing.max_offset) == (
        GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0
    )  # fmt: skip
    assert (nothing.messages, nothing.frames, nothing.damaged) == ([], [], [])


def test_queues_by_topic_and_id(look: StoreReader) -> None:
    def found(topic: str | None, queue_id: int | None) -> list[tuple[str, int]]:
        return [(queue.topic, queue.queue_id) for queue in look.queues(topic, queue_id)]

    every = [("TopicA", 0), ("TopicA", 1), ("TopicB", 0), ("TopicB", 1), ("rmq_sys_x", 0)]
    assert found(None, None) == every
    assert found("TopicA", None) == every[:2]
    assert found(None, 0) == [every[0], every[2], every[4]]
    assert found("TopicB", 1) == [every[3]]
    assert found(None, 7) == []
    assert (look.queue("TopicB", 1).topic, look.queue("TopicB", 1).queue_id) == ("TopicB", 1)
    with pytest.raises(NotFoundError, match="topic 'TopicA' has no queue 7") as caught:
        look.queue("TopicA", 7)
    assert caught.value.hint == "its queues are 0, 1"
    asked: list[Callable[[], object]] = [lambda: look.queue("Topic", 0), lambda: look.queues("Topic")]
    for ask in asked:
        with pytest.raises(NotFoundError, match="there is no topic 'Topic' in the consume queues") as caught:
            ask()
        assert caught.value.hint in ("did you mean 'TopicA'?", "did you mean 'TopicB'?")
    with pytest.raises(NotFoundError) as caught:
        look.queues("something else")
    assert caught.value.hint == "`rmqctl ls --topics` lists the topics"


def test_offsets_and_times(look: StoreReader) -> None:
    times = _times(look)
    first, second, last = times[0], times[3], times[5]
    assert [look.offset_at("TopicA", 0, time) for time in (0, first, first + 1, second, last, last + 1)] == [
        0, 0, 1, 1, 2, 3
    ]  # fmt: skip
    assert [look.offset_at("TopicA", 0, time, "upper") for time in (first, second - 1, second, last + 9)] == [
        0,
        0,
        1,
        2,
    ]
    with pytest.raises(NotFoundError):
        look.offset_at("TopicA", 5, first)
    assert [look.store_time("TopicA", 0, offset) for offset in (0, 1, 2, 3, -1)] == [first, second, last, -1, -1]
    assert [look.store_time("TopicA", 1, 1), look.store_time("TopicA", 9, 0)] == [times[7], -1]


def test_a_unit_that_leads_to_no_message_has_no_time(look: StoreReader) -> None:
    [path] = (look.files.root / "consumequeue/TopicA/0").iterdir()
    with path.open("r+b") as file:
        for unit in ((0, 0, 0), (5, 200, 0)):
            file.write(CONSUMEQUEUE_UNIT.struct.pack(*unit))
    queue = look.queue("TopicA", 0)
    units = list(queue.units(0, 3))
    assert [look.unit_store_time(unit) for unit in units] == [None, None, _times(look)[5]]
    assert [look.store_time("TopicA", 0, offset) for offset in range(3)] == [-1, -1, _times(look)[5]]


def test_a_query_is_held_against_all_that_is_asked_for(look: StoreReader) -> None:
    times = _times(look)
    asked = look.query
    assert _numbers(list(asked("TopicA", "all").messages)) == [7, 5, 3, 1, 0]
    assert _numbers(list(asked("TopicA", "all", times[1], times[5]).messages)) == [5, 3, 1]
    assert _numbers(list(asked("TopicA", "all", limit=2).messages)) == [7, 5]
    for scan in (False, True):
        assert _numbers(list(asked("TopicA", "all", tags="even", scan=scan).messages)) == [0]
        assert _numbers(list(asked("TopicA", "all", grep="k[35]", scan=scan).messages)) == [5, 3]
        assert _numbers(list(asked("TopicA", "k2", scan=scan).messages)) == []
        assert _numbers(list(asked("TopicB", "k2", scan=scan).messages)) == [2]
    found = asked("TopicA", "all")
    assert (found.damaged, found.removed, found.is_whole) == ([], 0, False)
    everything = [one.physical_offset for one in look.telling(Events(damage=_fail)).messages(Selection())]
    assert found.indexed == (everything[0], everything[-1])


def test_a_query_without_an_index_needs_a_scan(look: StoreReader) -> None:
    for path in (look.files.root / "index").iterdir():
        path.unlink()
    with StoreFiles(look.files.root) as files:
        bare = StoreReader(files)
        with pytest.raises(NotIndexedError, match="the store has no index") as caught:
            bare.query("TopicA", "all")
        assert caught.value.file == str(look.files.root / "index")
        assert "--scan" in (caught.value.hint or "")
        told: list[int] = []
        found = bare.telling(Events(told.append)).query("TopicA", "all", limit=3, scan=True)
        assert _numbers(list(found.messages)) == [7, 5, 3]
        assert (found.indexed, found.is_whole, found.removed) == (None, True, 0)
        assert sum(told) > 0


def test_a_scan_looks_where_the_index_does_not_reach(look: StoreReader) -> None:
    """Behind the last message that it knows, as after a crash; each message is given once."""
    with MessageStore.open(look.files.root, "rw", SMALL) as store:
        pass
    [index] = (look.files.root / "index").iterdir()
    kept = index.read_bytes()
    with MessageStore.open(look.files.root, "rw", SMALL) as store:
        store.put(message(8, properties={"KEYS": "all"}))
    index.write_bytes(kept)
    with StoreFiles(look.files.root) as files:
        later = StoreReader(files)
        assert _numbers(list(later.indexed("TopicA", "all").messages)) == [7, 5, 3, 1, 0]
        for scan in (False, True):
            found = later.query("TopicA", "all", scan=scan)
            assert (_numbers(list(found.messages)), found.is_whole) == ([8, 7, 5, 3, 1, 0], False)
        assert _numbers(list(later.query("TopicA", "all", limit=2, scan=True).messages)) == [8, 7]


def test_messages_in_both_orders(look: StoreReader) -> None:
    def found(order: str, count: int | None = None, **chosen: object) -> list[int]:
        selection = Selection(Criteria(**chosen))  # type: ignore[arg-type]  # each test names parameters of it
        if count is None:
            return _numbers(list(look.telling(Events(damage=_fail)).messages(selection, order)))  # type: ignore[arg-type]
        return _numbers(list(look.telling(Events(damage=_fail)).last_messages(selection, count, order)))  # type: ignore[arg-type]

    in_queues = [0, 3, 5, 1, 7, 2, 6, 4]
    of_users = {"topic": TopicFilter(["Topic*"], system_topics=False)}
    assert found("log") == list(range(8))
    assert found("queue") == in_queues
    for chosen, kept in (
        ({"topic": "TopicA"}, {0, 1, 3, 5, 7}),
        ({"topic": "TopicA", "queue_id": 1}, {1, 7}),
        ({"queue_id": 0}, {0, 2, 3, 4, 5}),
        (of_users, {0, 1, 2, 3, 5, 6, 7}),
        ({**of_users, "queue_id": 1}, {1, 6, 7}),
        ({"topic": TopicFilter(system_topics=False)}, {0, 1, 2, 3, 5, 6, 7}),
        ({"topic": TopicFilter(["TopicB", "TopicA"])}, {0, 1, 2, 3, 5, 6, 7}),
        ({"topic": TopicFilter(["none*"])}, set()),
    ):
        for order, all_of_them in (("log", list(range(8))), ("queue", in_queues)):
            expected = [number for number in all_of_them if number in kept]
            assert found(order, **chosen) == expected, (order, chosen)
            for count in (1, 2, 8):
                assert found(order, count, **chosen) == expected[-count:], (order, chosen, count)
    for unknown in ({"topic": "TopicC"}, {"topic": "TopicA", "queue_id": 4}):
        for limit in (None, 2):
            with pytest.raises(NotFoundError):
                found("queue", limit, **unknown)


def test_queues_that_cannot_be_read_are_not_called_empty(golden_store: GoldenStore) -> None:
    store = golden_store("rocksdb")
    (store / "consumequeue/CURRENT").write_text("MANIFEST-000099\n")
    look = StoreReader(StoreFiles(store))
    for ask in (look.queues, lambda: look.queue("TopicTest", 0), lambda: look.get("TopicTest", 0, 0)):
        with pytest.raises(CorruptError):
            ask()
    for topic in (None, "TopicTest"):
        selection = Selection(Criteria(topic))
        with pytest.raises(CorruptError):
            list(look.telling(Events(damage=_fail)).messages(selection, "queue"))
        with pytest.raises(CorruptError):
            look.telling(Events(damage=_fail)).last_messages(selection, 1, "queue")
