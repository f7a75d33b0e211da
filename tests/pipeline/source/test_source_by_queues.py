"""Messages that are found through the consume queues: as many as a walk finds, whatever the queues hold, and little is
read for them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.pipeline import queue_pruning as named
from rmqctl.pipeline.spark.options import SourceOptions
from rmqctl.pipeline.wanted import Comparison, Wanted, wanted_by
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native.tables import Columns
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth
from tests.pipeline.source.reading import WITH_LOGS, BytesRead, found, options_of
from tests.quick import examples, sample

Row = tuple[int, str, int, int]
NAMES = ("physical_offset", "topic", "queue_id", "queue_offset")
WITH_QUEUES = [name for name in WITH_LOGS if "cq-lost" not in name and name not in ("rocksdb", "longtopic-toolong")]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are asked however little that saves."""
    monkeypatch.setattr(named, "_WORTH", 1e9)


def _found(options: SourceOptions, wanted: Wanted) -> tuple[list[Row], list[bool]]:
    """The rows of a query, and of each of its tasks whether it read spans only."""
    rows, spanned = found(options, wanted, NAMES)
    return [(row[0], row[1], row[2], row[3]) for row in rows], spanned


def _all(path: Path, config: StoreConfig) -> list[Row]:
    rows: list[Row] = []
    with StoreFiles(path, config) as files:
        for record in walk_columns(files.log, columns=Columns.HEAD | Columns.TOPIC):
            if isinstance(record, MessageColumns):
                topics = [record.topic(row) for row in range(record.rows)]
                numbers = (record.physical_offset, record.queue_id, record.queue_offset)
                rows += [
                    (int(offset), topic, int(queue_id), int(queue_offset))
                    for topic, offset, queue_id, queue_offset in zip(topics, *numbers, strict=True)
                ]
    return rows


def _is_of(topic: str, row: Row) -> bool:
    return row[1] == topic


def _asked(rows: list[Row]) -> Iterator[tuple[list[Comparison], Callable[[Row], bool]]]:
    """Conditions, and what each means."""
    for topic in sorted({row[1] for row in rows} | {"none of these"}):
        yield [Comparison("topic", "=", (topic,))], partial(_is_of, topic)
    topic = max({row[1] for row in rows}, key=[row[1] for row in rows].count)
    several = ("OrderTopic", topic)
    yield [Comparison("topic", "in", several)], lambda row: row[1] in several
    of_topic = Comparison("topic", "=", (topic,))
    yield (
        [of_topic, Comparison("queue_id", "=", (1,)), Comparison("queue_offset", ">", (7,))],
        lambda row: row[1:3] == (topic, 1) and row[3] >= 7,
    )
    yield [of_topic, Comparison("queue_offset", "in", (3, 11))], lambda row: row[1] == topic and 3 <= row[3] <= 11
    yield [Comparison("queue_offset", "=", (2,))], lambda row: row[3] == 2
    yield [Comparison("queue_id", "=", (3,))], lambda row: row[2] == 3
    yield [Comparison("queue_offset", "<", (-1,))], lambda row: row[3] <= -1


@pytest.mark.parametrize("name", sample(WITH_LOGS, ["features", "crash", "cq-truncated"]))
@pytest.mark.usefixtures("always")
def test_as_many_as_a_walk_finds(name: str) -> None:
    """Compiled and plain in turn; of the conditions a quick run tries a third."""
    options = options_of(name)
    rows = _all(Path(options.path), options.store_config())
    is_used = False
    asked = list(_asked(rows))
    for comparisons, means in asked[:: len(asked) // examples(len(asked))]:
        messages, spanned = _found(options, wanted_by(comparisons))
        assert messages == [row for row in rows if means(row)], comparisons
        is_used = is_used or any(spanned)
    assert is_used or name not in WITH_QUEUES


def _zero_a_unit(rng: random.Random, queue: Path, others: list[Path]) -> None:
    data = bytearray(queue.read_bytes())
    at = rng.randrange(max(1, len(data.rstrip(b"\0")) // 20)) * 20
    data[at : at + 20] = bytes(20)
    queue.write_bytes(data)


def _turn_a_bit(rng: random.Random, queue: Path, others: list[Path]) -> None:
    data = bytearray(queue.read_bytes())
    data[rng.randrange(max(1, len(data.rstrip(b"\0"))))] ^= 1 << rng.randrange(8)
    queue.write_bytes(data)


def _cut_its_end(rng: random.Random, queue: Path, others: list[Path]) -> None:
    data = queue.read_bytes()
    units = rng.randrange(1 + len(data.rstrip(b"\0")) // 20)
    queue.write_bytes(data[: units * 20].ljust(len(data), b"\0"))


def _shorten(rng: random.Random, queue: Path, others: list[Path]) -> None:
    os.truncate(queue, rng.randrange(queue.stat().st_size))


def _remove(rng: random.Random, queue: Path, others: list[Path]) -> None:
    shutil.rmtree(queue.parent)


def _rename(rng: random.Random, queue: Path, others: list[Path]) -> None:
    queue.parent.parent.rename(queue.parent.parent.with_name("Other" + queue.parent.parent.name))


def _take_anothers(rng: random.Random, queue: Path, others: list[Path]) -> None:
    queue.write_bytes(rng.choice(others).read_bytes())


def _shift(rng: random.Random, queue: Path, others: list[Path]) -> None:
    data = queue.read_bytes()
    at = rng.randrange(max(1, len(data.rstrip(b"\0")) // 20)) * 20
    queue.write_bytes((data[:at] + data[at + 20 :]).ljust(len(data), b"\0"))


def _fill_with_noise(rng: random.Random, queue: Path, others: list[Path]) -> None:
    data = bytearray(queue.read_bytes())
    at = rng.randrange(max(1, len(data.rstrip(b"\0")) // 20)) * 20
    data[at : at + 200] = rng.randbytes(200)
    queue.write_bytes(data)


DAMAGES = [
    _zero_a_unit, _turn_a_bit, _cut_its_end, _shorten, _remove, _rename, _take_anothers, _shift, _fill_with_noise,
]  # fmt: skip


@pytest.mark.usefixtures("always")
def test_whatever_became_of_the_queues(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Damage of every kind, of one to three queues at a time: a message that lost its unit is found all the same."""
    store = golden_store("clean")
    queues = store / "consumequeue"
    shutil.copytree(queues, tmp_path / "whole")
    rows = _all(store, StoreConfig())
    topics = sorted({row[1] for row in rows})
    options = SourceOptions(str(store))
    for seed in range(examples(30)):
        rng = random.Random(seed)
        shutil.rmtree(queues)
        shutil.copytree(tmp_path / "whole", queues)
        for _ in range(rng.randint(1, 3)):
            files = sorted(path for path in queues.rglob("*") if path.is_file())
            rng.choice(DAMAGES)(rng, rng.choice(files), files)
        topic, least = rng.choice(topics), rng.choice([0, 0, 0, 5, 60])
        comparisons = [Comparison("topic", "=", (topic,)), Comparison("queue_offset", ">", (least,))]
        messages, _ = _found(options, wanted_by(comparisons))
        assert messages == [row for row in rows if row[1] == topic and row[3] >= least], f"seed {seed}"


TOPICS, EACH = 100, 400


@pytest.fixture(scope="module")
def hundred_topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 100 topics of equal size, their messages in turn, each of about 1.5 KB."""
    path = tmp_path_factory.mktemp("hundred") / "store"
    with MessageStore.open(path, "rw", StoreConfig(mapped_file_size_commit_log=20_020_000), create=True) as store:
        for first in range(0, EACH, 50):
            bodies = [number.to_bytes(4, "big") * 350 for number in range(first, first + 50)]
            results = store.put_many(
                [Message(f"Topic{topic:02}", body, 0) for body in bodies for topic in range(TOPICS)]
            )
            assert all(result.status.name == "PUT_OK" for result in results)
    return path


def test_one_topic_of_a_hundred(hundred_topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 3 % of the store is read, planning and looking at all units included."""
    rows = _all(hundred_topics, StoreConfig())
    read = BytesRead(monkeypatch)
    messages, spanned = _found(SourceOptions(str(hundred_topics)), wanted_by([Comparison("topic", "=", ("Topic42",))]))
    assert [row[1:] for row in messages] == [("Topic42", 0, number) for number in range(EACH)]
    assert all(spanned)
    assert read.bytes <= 0.03 * rows[-1][0]


def test_a_message_by_its_place_is_read_alone(hundred_topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _all(hundred_topics, StoreConfig())
    places = [rows[7][0], rows[20_000][0], rows[-1][0]]
    read = BytesRead(monkeypatch)
    asked = wanted_by([Comparison("physical_offset", "in", (*places, places[1] + 1, 1 << 50))])
    messages, _ = _found(SourceOptions(str(hundred_topics)), asked)
    assert [row[0] for row in messages] == places
    assert read.bytes < 30_000
    read.bytes = 0
    messages, _ = _found(
        SourceOptions(str(hundred_topics)), wanted_by([Comparison("physical_offset", "=", (places[1],))])
    )
    assert [row[0] for row in messages] == places[1:2]
    assert read.bytes < 10_000


@pytest.mark.parametrize(
    "name", sample(["clean", "features", "gap", "crc-flip-third", "torn-zero", "lmq"], ["features"])
)
def test_places_are_found_as_a_walk_finds_them(name: str) -> None:
    """Frames with units and without, and places where none begins."""
    options = options_of(name)
    rows = _all(Path(options.path), StoreConfig())
    rng = random.Random(1)
    for count in (1, 3, 40):
        places = [row[0] for row in rng.sample(rows, count)] + [rng.randrange(rows[-1][0]) for _ in range(3)]
        messages, _ = _found(options, Wanted().at(places))
        assert [row for row in messages if row[0] in places] == [row for row in rows if row[0] in places]


def test_a_place_inside_a_body_is_no_message(tmp_path: Path) -> None:
    """A body may hold a good frame that says it stands just there; the queues know of none."""
    from tests.store.logs import BODY_AT, frame

    with MessageStore.open(tmp_path / "store", "rw", create=True) as store:
        store.put(Message("T", b"before"))
        end = store.files.log.files[-1].wrote_position
        inner = end + BODY_AT
        store.put(Message("T", frame(inner, b"inner", topic="T", queue_offset=5)))
    messages, _ = _found(SourceOptions(str(tmp_path / "store")), Wanted().at([inner, end]))
    assert [row[0] for row in messages if row[0] in (inner, end)] == [end]


def test_the_truth_of_a_queue(always: None) -> None:
    """By RocketMQ's own account."""
    messages, spanned = _found(options_of("clean"), wanted_by([Comparison("topic", "=", ("OrderTopic",))]))
    stored = [int(row["phyOffset"]) for row in truth("clean").messages if row["topic"] == "OrderTopic"]
    assert [row[0] for row in messages] == stored
    assert spanned == [True] * len(spanned)
