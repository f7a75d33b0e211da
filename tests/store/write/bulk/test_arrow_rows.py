"""Rows of a record batch: what stands for values that are missing, and which Arrow types hold a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import LOCAL_HOST, Host, StoredMessage
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write.bulk.arrow import rows_of_batch
from tests.store.write.writing import SMALL, stored_messages

NOW = 1_700_000_000_000


def stored_from(folder: Path, batch: pa.RecordBatch, as_stored: bool = False) -> list[StoredMessage]:
    """The messages of a new store that the batch was put to, first known ones and then all of it."""
    with MessageStore.open(folder / "s", "rw", SMALL, create=True, clock=lambda: NOW) as store:
        for _ in range(2):  # the second time the queues are known
            assert store.put_columns(batch, as_stored=as_stored).stored == batch.num_rows
    found = stored_messages(folder / "s")
    assert len(found) == 2 * batch.num_rows
    assert [one.body for one in found[: batch.num_rows]] == [one.body for one in found[batch.num_rows :]]
    return found


def test_numbers_that_are_missing_are_zero_and_times_those_of_the_put(tmp_path: Path) -> None:
    names = ["queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "born_timestamp"]
    batch = pa.record_batch(
        {"topic": ["T"] * 2, "body": ["b"] * 2, **{name: pa.array([None, 1], pa.int64()) for name in names}}
    )
    for number, one in enumerate(stored_from(tmp_path, batch)):
        values = [one.queue_id, one.flag, one.sys_flag, one.reconsume_times, one.prepared_transaction_offset]
        # the lowest flag says that the body is compressed
        assert values == ([1] * 5 if number % 2 else [0] * 5)
        assert one.born_timestamp == (1 if number % 2 else NOW)


def looked_up(values: pa.Array, *numbers: int | None) -> pa.Array:
    """An array of those of the values that have these numbers."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), values)


@pytest.mark.parametrize("name", ["topic", "body"])
def test_a_topic_or_body_is_missing_wherever_the_null_stands(name: str) -> None:
    """Arrow counts those among the numbers alone: such a message went into the topic of another one."""
    other = {"topic": ["T"] * 3, "body": ["b"] * 3}
    for values, numbers in (
        (pa.array(["a", None]), (0, 1, 0)),
        (pa.array(["a", "c"]), (0, None, 1)),
        (pa.array(["a", None]), (None, 0, 0)),
    ):
        with pytest.raises(UsageError, match=f"every message needs a {name}"):
            rows_of_batch(pa.record_batch({**other, name: looked_up(values, *numbers)}))
    found = rows_of_batch(pa.record_batch({**other, name: looked_up(pa.array(["a", None, "c"]), 0, 2, 0)}))
    texts = [getattr(found.message(row), name) for row in range(3)]
    assert texts == (["a", "c", "a"] if name == "topic" else [b"a", b"c", b"a"])


def test_a_number_beyond_its_dictionary_is_told() -> None:
    wild = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), pa.array(["a", None]), safe=False)
    with pytest.raises(UsageError, match="cannot be stored"):
        rows_of_batch(pa.record_batch({"topic": wild, "body": ["b", "c"]}))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_a_topic_that_has_two_numbers_is_one_topic(kind: pa.DataType, tmp_path: Path) -> None:
    """Each number was taken for a queue of its own: two messages got the same queue offset."""
    topics = looked_up(pa.array(["T", "Other", "T"], kind), 0, 1, 2, 0, 2)
    batch = pa.record_batch({"topic": topics, "body": ["1", "2", "3", "4", "5"]})
    found = stored_from(tmp_path, batch)
    assert [one.queue_offset for one in found if one.topic == "T"] == list(range(8))
    assert [one.body for one in found if one.topic == "Other"] == [b"2", b"2"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_topics_and_hosts_are_looked_up_in_dictionaries_of_any_texts(kind: pa.DataType, tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "topic": looked_up(pa.array(["T", "Other"], kind), 1, 0, 0, 1),
            "body": ["1", "2", "3", "4"],
            "born_host": looked_up(pa.array(["1.2.3.4:5", None], kind), 0, 1, None, 0),
            "store_host": looked_up(pa.array([None, "1.2.3.4:6"], kind), 1, 0, None, 1),
        }
    )
    found = stored_from(tmp_path, batch, as_stored=True)
    one, two = Host(b"\1\2\3\4", 5), Host(b"\1\2\3\4", 6)
    assert [message.topic for message in found[:4]] == ["Other", "T", "T", "Other"]
    for begin in (0, 4):
        assert [message.born_host for message in found[begin : begin + 4]] == [one, LOCAL_HOST, LOCAL_HOST, one]
        assert [message.store_host for message in found[begin : begin + 4]] == [two, LOCAL_HOST, LOCAL_HOST, two]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(3)],
    ids=str,
)
def test_bodies_may_have_any_type_of_bytes_or_texts(kind: pa.DataType, tmp_path: Path) -> None:
    """Of a part of a batch, too, whose values do not begin where those of the batch do."""
    bodies = pa.array([b"one", b"two", b"six", b"ten", b"end"], pa.binary()).cast(kind)
    batch = pa.record_batch({"topic": ["T"] * 5, "body": bodies}).slice(1, 3)
    assert [one.body for one in stored_from(tmp_path, batch)[3:]] == [b"two", b"six", b"ten"]


def test_a_body_that_could_not_be_unpacked_is_not_packed_again(tmp_path: Path) -> None:
    """Such a row of a scan has the stored bytes as its body; the others are packed as their flags say."""
    batch = pa.record_batch(
        {
            "topic": ["T"] * 3,
            "body": [b"plain", b"as it was", b"open"],
            "sys_flag": [0x301, 0x301, 0],
            "body_error": [None, "is no zlib stream", None],
        }
    )
    bodies = [one.body for one in stored_from(tmp_path, batch)[3:]]
    assert bodies[0] not in (b"plain", b"")
    assert bodies[1:] == [b"as it was", b"open"]


def test_hosts_of_copies_are_their_own_beside_those_of_producers(tmp_path: Path) -> None:
    """Whichever of them come twice, are missing, or have no packed form."""
    born = ["1.2.3.4:5", "[::1]:6", None, "5.6.7.8:9", "1.2.3.4:5"]
    stored = ["9.9.9.9:1", "8.8.8.8:2", "[::2]:7", None, "9.9.9.9:1"]
    batch = pa.record_batch(
        {
            "topic": ["T"] * 5,
            "body": ["b"] * 5,
            "born_host": pa.array(born, pa.string()),
            "store_host": pa.array(stored, pa.string()),
            "store_timestamp": [NOW + number for number in range(5)],
        }
    )
    found = stored_from(tmp_path, batch, as_stored=True)

    def shown(host: Host, missing: str | None) -> Any:
        return missing if host == LOCAL_HOST else str(host)

    for begin in (0, 5):
        assert [shown(one.born_host, None) for one in found[begin : begin + 5]] == born
        assert [shown(one.store_host, None) for one in found[begin : begin + 5]] == stored
    with MessageStore.open(tmp_path / "s", "rw", SMALL) as store:
        result = store.put_columns(batch, as_stored=True)
        hosts = [one.store_host for one in result.results(LOCAL_HOST)]
    assert [shown(host or LOCAL_HOST, None) for host in hosts] == stored


def test_texts_may_come_as_bytes_whichever_way_a_message_takes(tmp_path: Path) -> None:
    """In an unusual row, too, which becomes a message first."""
    pairs = pa.array([[(b"A", b"1")], None, None], pa.map_(pa.binary(), pa.binary()))
    batch = pa.record_batch(
        {
            "topic": pa.array([b"T"] * 3, pa.binary()),
            "body": ["b"] * 3,
            "born_host": pa.array([b"1.2.3.4:5"] * 3, pa.binary()),
            "properties": pairs,
            "tags": pa.array([None, b"t", "ä".encode()], pa.binary()),
            "keys": pa.array([None, [b"k", b"l"], []], pa.list_(pa.binary())),
        }
    )
    for one in stored_from(tmp_path, batch)[3:]:
        assert one.born_host == Host(b"\1\2\3\4", 5)
    wanted = [{"A": "1"}, {"KEYS": "k l", "TAGS": "t"}, {"TAGS": "ä"}]
    assert [one.properties() for one in stored_messages(tmp_path / "s")] == wanted * 2


def test_only_copies_bring_a_store_time_and_host(tmp_path: Path) -> None:
    batch = pa.record_batch({"topic": ["T"], "body": ["b"], "store_timestamp": [5], "store_host": ["9.9.9.9:1"]})
    for one in stored_from(tmp_path, batch):
        assert (one.store_timestamp, one.store_host) == (NOW, LOCAL_HOST)
