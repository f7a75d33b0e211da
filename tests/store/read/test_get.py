"""Reads of a queue: RocketMQ's statuses and next offsets (DefaultMessageStore#getMessage), tags, limits, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import QueueUnit, pack_batch_unit
from rmqctl.store.read.filter import Criteria, TagFilter
from rmqctl.store.read.get import GetResult
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.select import Selection
from rmqctl.store.status import GetStatus
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, Row, truth
from tests.opened import reader
from tests.quick import goldens_of


def _queue(name: str, topic: str, queue_id: int = 0) -> Row:
    return next(row for row in truth(name).queues if (row["topic"], row["queueId"]) == (topic, queue_id))


def _read_all(
    look: StoreReader, topic: str, queue_id: int, tags: str | None = None
) -> tuple[list[int], list[GetResult]]:
    """Physical offsets of a queue's messages as a consumer gets them, from offset 0 on."""
    offsets: list[int] = []
    results: list[GetResult] = []
    offset = look.get(topic, queue_id, -1).next_offset
    while True:
        result = look.get(topic, queue_id, offset, tags=tags)
        results.append(result)
        offsets += [message.physical_offset for message in result.messages]
        if result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return offsets, results
        assert result.next_offset > offset
        offset = result.next_offset


@pytest.mark.parametrize(
    "name", ["clean", "v4-clean", "features", "innerbatch", "lmq", "cqext", "broker-real", "longtopic"]
)
def test_a_consumer_gets_every_message_of_every_queue(name: str) -> None:
    expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in truth(name).messages:
        for unit in row["cq"] or []:
            expected.setdefault((unit["topic"], unit["queueId"]), []).append((unit["offset"], row["phyOffset"]))
    assert expected
    for (topic, queue_id), units in expected.items():
        offsets, results = _read_all(reader(name), topic, queue_id)
        assert offsets == [physical_offset for _, physical_offset in sorted(units)], (topic, queue_id)
        assert not any(result.damaged for result in results)


@pytest.mark.parametrize("name", ["clean", "first-gone", "cq-truncated"])
def test_the_edges_of_a_queue(name: str) -> None:
    look = reader(name)
    for row in truth(name).queues:
        place = (row["topic"], row["queueId"])
        low, high = row["min"], row["max"]
        cases = [(low - 1, GetStatus.OFFSET_TOO_SMALL, low), (high, GetStatus.OFFSET_OVERFLOW_ONE, high)]
        cases += [(high + 1, GetStatus.OFFSET_OVERFLOW_BADLY, high), (high + 5, GetStatus.OFFSET_OVERFLOW_BADLY, high)]
        if high == 0:
            cases = [(offset, GetStatus.NO_MESSAGE_IN_QUEUE, 0) for offset in (-1, 0, 5)]
        for offset, status, following in cases:
            result = look.get(*place, offset)
            assert (result.status, result.next_offset) == (status, following), (place, offset)
            assert (result.min_offset, result.max_offset) == (low, high)


def test_an_unknown_queue_is_an_empty_one() -> None:
    result = reader("clean").get("NoSuchTopic", 0, 7)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_queues_in_a_rocksdb_give_their_messages() -> None:
    result = reader("rocksdb").get("TopicTest", 0, 2)
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 7)
    assert [message.queue_offset for message in result.messages] == [2, 3, 4, 5, 6]


def test_a_call_gives_at_most_32_messages_and_256_kib() -> None:
    look = reader("clean")
    result = look.get("%DLQ%GroupA", 0, 0, limit=1000)
    assert (len(result.messages), result.next_offset) == (32, 32)
    assert len(look.get("%DLQ%GroupA", 0, 0, limit=5).messages) == 5
    # over the end of a consumequeue file (100 units), where the broker would stop
    assert look.get("%DLQ%GroupA", 0, 90).next_offset == 122
    sizes = [
        row["storeSize"] for row in truth("clean").messages if (row["topic"], row["queueId"]) == ("%DLQ%GroupA", 0)
    ]
    fitting = look.get("%DLQ%GroupA", 0, 0, max_bytes=sum(sizes[:4]))
    assert len(fitting.messages) == 4
    assert len(look.get("%DLQ%GroupA", 0, 0, max_bytes=sum(sizes[:4]) - 1).messages) == 3
    # the first message comes whatever its size
    assert len(look.get("%DLQ%GroupA", 0, 2, max_bytes=1).messages) == 1


@pytest.mark.parametrize("name", ["clean", "cqext", "v4-cqext"])
def test_tags(name: str) -> None:
    rows = [row for row in truth(name).messages if (row["topic"], row["queueId"]) == ("%DLQ%GroupA", 0)]
    for expression in ("TagA", "TagA || TagB", " TagC||标签1 ", "*", "", None, "nobody"):
        wanted = {part.strip() for part in (expression or "*").split("||")}
        expected = [row["phyOffset"] for row in rows if wanted in ({"*"}, {""}) or row["tags"] in wanted]
        assert _read_all(reader(name), "%DLQ%GroupA", 0, expression)[0] == expected, expression


def test_only_filtered_out_units() -> None:
    result = reader("clean").get("%DLQ%GroupA", 0, 3, tags="nobody")
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 230)


def test_a_tag_with_the_same_hash_is_not_the_same_tag() -> None:
    # "Aa" and "BB" have one hash in Java
    assert java_hash("Aa") == java_hash("BB")
    look = TagFilter("Aa")
    assert look.may_match(java_hash("BB"))
    assert not look.matches("BB")
    assert not look.matches(None)
    assert look.matches("Aa")


def test_a_filter_that_names_no_tag() -> None:
    with pytest.raises(UsageError):
        TagFilter(" || ")


def test_asking_inside_a_batch_gives_the_whole_batch() -> None:
    result = reader("innerbatch").get("InnerBatchTopic", 0, 5, limit=3)
    assert result.messages[0].queue_offset == 4
    assert result.next_offset == 9
    assert result.max_offset == 57
    # the next batch has to wait where not all of it is asked for
    sizes = [unit.batch_size for unit in reader("innerbatch").queue("InnerBatchTopic", 0).units(4, 57)][:2]
    for limit, batches in ((sum(sizes) - 1, 1), (sum(sizes), 2)):
        result = reader("innerbatch").get("InnerBatchTopic", 0, 5, limit=limit)
        assert (len(result.messages), result.next_offset) == (batches, 4 + sum(sizes[:batches]))


def test_batches_are_looked_through_up_to_the_limit_and_not_beyond(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    path, *others = sorted((store / "batchconsumequeue/InnerBatchTopic/0").iterdir())
    for other in others:
        other.unlink()
    size = path.stat().st_size
    # so many batches are below what is looked through at least; their offsets may leave gaps
    limit = 400
    for base, looked_at in ((limit - 1, True), (limit, False)):
        units = [QueueUnit(one, 0, 100, 0, batch_size=2) for one in (0, base)]
        path.write_bytes(b"".join(map(pack_batch_unit, units)).ljust(size, b"\0"))
        with StoreFiles(store) as files:
            result = StoreReader(files).get("InnerBatchTopic", 0, 0, limit, tags="nobody")
        assert (result.status, result.max_offset) == (GetStatus.NO_MATCHED_MESSAGE, base + 2)
        assert result.next_offset == (base + 2 if looked_at else 2)


def test_a_unit_into_a_gap_is_damage_with_rocketmq_s_status() -> None:
    look = reader("gap")
    lost = [row for row in truth("clean").messages if 1048576 <= row["phyOffset"] < 1310720]
    row = lost[0]
    result = look.get(row["topic"], row["queueId"], row["queueOffset"], limit=1)
    assert result.damaged[0].physical_offset == row["phyOffset"]
    assert "missing" in str(result.damaged[0].error)
    run = [one for one in lost if (one["topic"], one["queueId"]) == ("%DLQ%GroupA", 0)]
    first, last = run[0]["queueOffset"], run[-1]["queueOffset"]
    assert look.get("%DLQ%GroupA", 0, first).next_offset == last + 1 + len(look.get("%DLQ%GroupA", 0, first).messages)
    assert [unit.queue_offset for unit in look.get("%DLQ%GroupA", 0, first).damaged] == list(range(first, last + 1))


def test_a_damaged_message_is_never_just_absent() -> None:
    row = next(one for one in truth("clean").messages if one["phyOffset"] == 1695806)
    result = reader("crc-flip-third").get(row["topic"], row["queueId"], row["queueOffset"])
    assert result.damaged[0].physical_offset == 1695806
    assert "body CRC" in str(result.damaged[0].error)
    assert result.messages[0].queue_offset == row["queueOffset"] + 1


def test_a_unit_that_points_at_another_message(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = store / "consumequeue/OrderTopic/1/00000000000000000000"
    other = Path(store / "consumequeue/OrderTopic/2/00000000000000000000").read_bytes()[:20]
    path.write_bytes(other + path.read_bytes()[20:])
    with StoreFiles(store) as files:
        result = StoreReader(files).get("OrderTopic", 1, 0)
    assert "points at message 0 of 'OrderTopic' queue 2" in str(result.damaged[0].error)
    assert result.messages[0].queue_offset == 1


def test_a_hole_and_a_placeholder(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = store / "consumequeue/OrderTopic/1/00000000000000000000"
    data = path.read_bytes()
    placeholder = bytes(8) + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data[:60] + bytes(20) + placeholder + data[100:])
    with StoreFiles(store) as files:
        result = StoreReader(files).get("OrderTopic", 1, 2, limit=2)
    assert [message.queue_offset for message in result.messages] == [2, 5]
    assert ["never written" in str(unit.error) for unit in result.damaged] == [True, False]
    assert result.next_offset == 6
    # whoever reads the whole queue is not told of a placeholder, which stands there on purpose
    damage: list[CorruptError] = []
    with StoreFiles(store) as files:
        chosen = Selection(Criteria(topic="OrderTopic", queue_id=1))
        found = [
            one.queue_offset
            for one in StoreReader(files).telling(Events(damage=damage.append)).messages(chosen, "queue")
        ]
    assert found[:4] == [0, 1, 2, 5]
    assert ["never written" in str(error) for error in damage] == [True]


def test_a_missing_file_in_the_middle(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "consumequeue/%DLQ%GroupA/0/00000000000000002000").unlink()
    with StoreFiles(store) as files:
        result = StoreReader(files).get("%DLQ%GroupA", 0, 130)
    assert (result.status, result.next_offset, result.messages) == (GetStatus.OFFSET_FOUND_NULL, 200, [])


def test_an_ext_unit_that_is_gone_lets_the_message_pass(golden_store: GoldenStore) -> None:
    store = golden_store("cqext")
    for path in (store / "consumequeue_ext").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    rows = [row for row in truth("cqext").messages if (row["topic"], row["queueId"]) == ("%DLQ%GroupA", 0)]
    with StoreFiles(store) as files:
        offsets, _ = _read_all(StoreReader(files), "%DLQ%GroupA", 0, "TagA")
    assert offsets == [row["phyOffset"] for row in rows if row["tags"] == "TagA"]


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_every_queue_of_every_store_can_be_read_to_its_end(name: str) -> None:
    look = reader(name)
    try:
        queues = look.queues()
    except UnsupportedError:
        assert name == "rocksdb"
        return
    for queue in queues[:12]:
        _read_all(look, queue.topic, queue.queue_id)


def test_the_first_message_of_a_queue_has_the_earliest_time() -> None:
    row = _queue("clean", "%DLQ%GroupA")
    assert reader("clean").get("%DLQ%GroupA", 0, 0, limit=1).messages[0].store_timestamp == row["earliestTime"]


def test_nonsense_in_the_first_unit_is_damage_not_an_offset_that_expired(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = store / "consumequeue/TopicTest/0/00000000000000000000"
    with path.open("r+b") as file:
        file.write(b"\x80")
    with StoreFiles(store) as files:
        result = StoreReader(files).get("TopicTest", 0, 0, 1)
        assert result.min_offset == 0
        assert [damaged.queue_offset for damaged in result.damaged] == [0]
        assert "holds what no unit has" in result.damaged[0].error.message
