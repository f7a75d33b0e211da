"""What the commitlog holds after puts, against the bytes that RocketMQ wrote and against its rules."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqctl.formats.message import Host, Message, StoredMessage
from rmqctl.formats.properties import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, encode_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write.prepare import copy_of
from rmqctl.store.write.put import Putter
from tests.goldens import GoldenStore
from tests.store.write.writing import (
    FILE_SIZE,
    SMALL,
    body_that_leaves,
    copy_store,
    files_below,
    golden_config,
    log_file,
    message,
    stored_messages,
)

OVERHEAD = 91 + len("TopicA")
FULL = body_that_leaves(8, 0)

# everything that RocketMQ wrote without help from outside the store
COPIED = (
    "broker-real clean compaction cqext features innerbatch lmq longtopic longtopic-toolong noindex propcrc"
    " rocksdb-double syncflush transient-pool v4-clean v4-cqext v4-features"
).split()


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_message_by_message_is_byte_identical(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    source, target = golden_store(name), tmp_path / "copy"
    copy_store(source, target, golden_config(name))
    folders = ["commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue"]
    assert any(files_below(source / folder) for folder in folders)
    for folder in folders:
        assert files_below(target / folder) == files_below(source / folder)


class _GoldenClock:
    """Tells the store time that the golden's next message has."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def put_as_new(store: MessageStore, clock: _GoldenClock, stored: StoredMessage, dropped: tuple[str, ...]) -> None:
    """Put what a producer had sent: no store time, and nothing of what a store adds to the properties."""
    clock.now = stored.store_timestamp
    properties = {name: value for name, value in stored.properties().items() if name not in dropped}
    fresh = copy_of(stored)._replace(property_bytes=None, properties=properties, store_timestamp=None)
    assert store.put(fresh).status is PutStatus.PUT_OK


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("clean", ()),
        ("propcrc", ("__CRC32#",)),
        ("lmq", ("INNER_MULTI_QUEUE_OFFSET",)),
        ("innerbatch", ("INNER_BASE",)),
        ("transient-pool", ()),
        ("syncflush", ()),
    ],
)
def test_new_messages_are_stored_as_rocketmq_stored_them(
    name: str, dropped: tuple[str, ...], golden_store: GoldenStore, tmp_path: Path
) -> None:
    """Properties stand in another order where RocketMQ adds one to its map; all else is equal, queues to the byte."""
    source, target, clock = golden_store(name), tmp_path / "new", _GoldenClock()
    expected = stored_messages(source)
    if name == "innerbatch":
        # as the topic's creation leaves it before there is any queue
        (target / "config").mkdir(parents=True)
        (target / "config" / "topics.json").write_text(
            '{"topicConfigTable":{"InnerBatchTopic":{"attributes":{"queue.type":"BatchCQ"}}}}'
        )
    with MessageStore.open(target, "rw", golden_config(name), create=True, clock=clock) as store:
        for stored in expected:
            put_as_new(store, clock, stored, dropped)
    found = stored_messages(target)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours._replace(property_bytes=b"") == theirs._replace(property_bytes=b"")
        changed = {"__CRC32#"} if ours.property_bytes != theirs.property_bytes else set()
        assert {key: value for key, value in ours.properties().items() if key not in changed} == {
            key: value for key, value in theirs.properties().items() if key not in changed
        }
    for folder in ("consumequeue", "batchconsumequeue"):
        assert files_below(target / folder) == files_below(source / folder)


def test_a_property_crc_is_rocketmq_s(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Messages whose properties keep their order have the frame, CRC included, to the byte."""
    source, target, clock = golden_store("propcrc"), tmp_path / "new", _GoldenClock()
    with MessageStore.open(target, "rw", golden_config("propcrc"), create=True, clock=clock) as store:
        for stored in stored_messages(source):
            clock.now = stored.store_timestamp
            fresh = copy_of(stored)._replace(property_bytes=None, properties=stored.properties(), store_timestamp=None)
            if encode_properties(fresh.properties) == stored.property_bytes:
                assert store.put(fresh).status is PutStatus.PUT_OK
            else:  # a batch message repeats names, which no mapping can hold
                assert store.put(copy_of(stored), as_stored=True).status is PutStatus.PUT_OK
    assert files_below(target / "commitlog") == files_below(source / "commitlog")


def test_a_copied_property_crc_is_made_anew_elsewhere(golden_store: GoldenStore, tmp_path: Path) -> None:
    last = stored_messages(golden_store("propcrc"))[-1]
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        assert store.put(copy_of(last), as_stored=True).physical_offset == 0
    (found,) = stored_messages(tmp_path / "s")  # the walk checks the frame's CRC
    assert found.property_bytes[-20:] != last.property_bytes[-20:]
    assert found.property_bytes[:-20] == last.property_bytes[:-20]


# ---- rolls


@pytest.mark.parametrize("ahead", [True, False])
def test_a_frame_that_leaves_eight_bytes_stays(tmp_path: Path, ahead: bool) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, allocate_ahead=ahead) as store:
        first = store.put(message(1000))
        second = store.put(message(body_that_leaves(8, OVERHEAD + 1000)))
        third = store.put(message(10))
    assert [result.physical_offset for result in (first, second, third)] == [0, OVERHEAD + 1000, FILE_SIZE]
    blank = log_file(tmp_path / "s", 0).read_bytes()[-8:]
    assert blank == struct.pack(">iI", 8, 0xCBD43194)
    assert sorted(path.name for path in (tmp_path / "s" / "commitlog").iterdir()) == [f"{0:020}", f"{FILE_SIZE:020}"]


def test_a_frame_that_would_leave_seven_bytes_goes_to_the_next_file(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(1000))
        second = store.put(message(body_that_leaves(7, OVERHEAD + 1000)))
    assert second.physical_offset == FILE_SIZE
    left = FILE_SIZE - OVERHEAD - 1000
    data = log_file(tmp_path / "s", 0).read_bytes()
    assert data[-left:] == struct.pack(">iI", left, 0xCBD43194) + bytes(left - 8)


def test_the_largest_frame_fits_and_a_larger_one_burns_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(10))
        refused = store.put(message(FULL + 1))
        assert refused.status is PutStatus.MESSAGE_ILLEGAL
        assert (refused.message_id, refused.physical_offset, refused.queue_offset) == (None, None, None)
        largest = store.put(message(FULL))
        after = store.put(message(10))
    assert (largest.physical_offset, largest.queue_offset) == (FILE_SIZE, 1)
    assert (after.physical_offset, after.queue_offset) == (2 * FILE_SIZE, 2)
    assert len(stored_messages(tmp_path / "s")) == 3


# ---- batches


def test_a_batch_goes_to_the_next_file_as_a_whole(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(body_that_leaves(1000, 0)))
        # each of the frames would fit, the three of them do not
        results = store.put_many([message(300), message(301), message(302)], batch=True)
        assert [result.queue_offset for result in results] == [1, 2, 3]
        assert [result.physical_offset for result in results] == [
            FILE_SIZE,
            FILE_SIZE + OVERHEAD + 300,
            FILE_SIZE + 2 * OVERHEAD + 601,
        ]
    times = {found.store_timestamp for found in stored_messages(tmp_path / "s")[1:]}
    assert len(times) == 1


def test_a_batch_that_just_fits_stays(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message(body_that_leaves(2 * OVERHEAD + 200 + 8, 0)))
        results = store.put_many([message(100), message(100)], batch=True)
        assert results[1].physical_offset == FILE_SIZE - 8 - OVERHEAD - 100


def test_a_batch_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        too_long = [message(100), message(100, properties={"p": "x" * 32767}), message(100)]
        results = store.put_many(too_long, batch=True)
        assert {result.status for result in results} == {PutStatus.PROPERTIES_SIZE_EXCEEDED}
        # larger than a file together
        results = store.put_many([message(FILE_SIZE // 2)] * 2, batch=True)
        assert {result.status for result in results} == {PutStatus.MESSAGE_ILLEGAL}
        assert store.put(message()).queue_offset == 0
    assert len(stored_messages(tmp_path / "s")) == 1


def test_single_messages_of_put_many_stand_for_themselves(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        results = store.put_many([message(), message(topic="T" * 128), message(queue_id=1), message()])
    assert [result.queue_offset for result in results] == [0, None, 0, 1]


# ---- transactions, hosts, ids


def test_queue_offsets_by_kind_of_transaction(tmp_path: Path) -> None:
    kinds = [0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0]
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        offsets = [store.put(message(sys_flag=kind)).queue_offset for kind in kinds]
        store.wait_for_dispatch()
        assert len(store.get("TopicA", 0, 0).messages) == 3
    assert offsets == [0, 0, 1, 0, 2]
    assert [found.queue_offset for found in stored_messages(tmp_path / "s")] == offsets


V4 = Host(bytes([10, 1, 2, 3]), 54321)
V6 = Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)


@pytest.mark.parametrize(
    ("born", "store_host", "flags", "size"),
    [(V4, V4, 0, 0), (V6, V4, 0x10, 12), (V4, V6, 0x20, 12), (V6, V6, 0x30, 24)],
)
def test_ipv6_hosts(tmp_path: Path, born: Host, store_host: Host, flags: int, size: int) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, store_host=store_host) as store:
        # bits of a wrong kind of host are corrected
        result = store.put(message(born_host=born, sys_flag=0x30))
    (found,) = stored_messages(tmp_path / "s")
    assert (found.born_host, found.store_host, found.sys_flag) == (born, store_host, flags)
    assert found.total_size == OVERHEAD + 100 + size
    assert result.message_id == found.message_id


MAPPED = Host(bytes(10) + b"\xff\xff\x0a\x01\x02\x03", 54321)


@pytest.mark.parametrize("way", ["put", "put_many", "put_columns", "stored"])
def test_ipv4_in_the_dress_of_ipv6_is_written_as_ipv4(tmp_path: Path, way: str) -> None:
    """No broker writes such a host as 16 bytes: a 4.9 one that delivers such a delayed message destroys its log."""
    given = message(born_host=MAPPED, sys_flag=0x30)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, store_host=MAPPED) as store:
        if way == "put":
            results = [store.put(given) for _ in range(3)]
        elif way == "put_many":
            results = list(store.put_many([given] * 200))
        elif way == "put_columns":
            hosts = [str(MAPPED), "1.2.3.4:5", "[::1]:6"] * 3
            batch = pa.record_batch({"topic": ["T"] * 9, "body": ["x"] * 9, "born_host": hosts})
            assert store.put_columns(batch).stored == 9
            results = []
        else:
            results = [store.put(given._replace(store_host=MAPPED, store_timestamp=7), as_stored=True)]
    found = stored_messages(tmp_path / "s")
    for number, one in enumerate(found):
        if way == "put_columns" and number % 3:
            continue
        assert (one.born_host, one.store_host, one.sys_flag) == (V4, V4, 0)
    assert [result.message_id for result in results] == [one.message_id for one in found][: len(results)]


def test_the_worked_example_of_the_format(tmp_path: Path) -> None:
    """docs/formats.md, written by 5.3.3."""
    put = Message(
        topic="TopicA",
        body=b"hello",
        properties={"KEYS": "k1 k2", "TAGS": "TagA"},
        born_timestamp=0x18BCFE5687B,
        born_host=V4,
    )
    host = Host(bytes([127, 0, 0, 1]), 10911)
    with MessageStore.open(
        tmp_path / "s", "rw", SMALL, create=True, store_host=host, clock=lambda: 0x1A1FB4A8C5D
    ) as store:
        assert store.put(put).message_id == "7F00000100002A9F0000000000000000"
    expected = bytes.fromhex(
        "0000007bdaa320a73610a6860000000000000000000000000000000000000000000000000000000000000 18bcfe5687b".replace(
            " ", ""
        )
        + "0a0102030000d431000001a1fb4a8c5d7f00000100002a9f00000000000000000000000000000005 68656c6c6f".replace(" ", "")
        + "06546f706963410015 4b455953016b31206b3202544147530154616741 02".replace(" ", "")
    )
    assert log_file(tmp_path / "s", 0).read_bytes()[:124] == expected + b"\0"


def test_store_times_never_go_back_and_born_times_are_kept(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for born in (5, None):
            store.put(message(born_timestamp=born))
    first, second = stored_messages(tmp_path / "s")
    assert first.born_timestamp == 5
    assert second.store_timestamp >= second.born_timestamp >= first.store_timestamp > 1_600_000_000_000


def test_a_new_store_host_is_that_of_the_last_message(golden_store: GoldenStore) -> None:
    store_path = golden_store("features")
    last = stored_messages(store_path)[-1]
    with MessageStore.open(store_path, "rw") as store:
        store.put(message())
    assert stored_messages(store_path)[-1].store_host == last.store_host


def test_closing_waits_for_the_put_that_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it stores is in its queue when the store is closed."""
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    closing = threading.Thread(target=store.close)
    made = Putter._frames

    def meanwhile(*given: Any) -> Any:
        closing.start()
        closing.join(0.3)  # it waits for this put, however long one waits here
        return made(*given)

    monkeypatch.setattr(Putter, "_frames", meanwhile)
    result = store.put(message())
    closing.join()
    assert result.status is PutStatus.PUT_OK
    with MessageStore.open(tmp_path / "s", config=SMALL) as opened:
        assert [found.queue_offset for found in opened.get("TopicA", 0, 0, 10).messages] == [0]
