"""Many messages at once leave what single puts leave: from lists of messages and from Arrow columns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write import writer
from rmqctl.store.write.bulk import bulk
from rmqctl.store.write.put import PutResult
from tests.quick import examples
from tests.store.native.forms import take_plain_form
from tests.store.same_files import MESSAGES, by_put, files_after, one_by_one
from tests.store.write.writing import SMALL, lines_of, message, records, run_python, small, stored_messages

pa = pytest.importorskip("pyarrow")
# a store for every smaller example would take minutes
NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)
SLOW = settings(
    max_examples=examples(40), deadline=None, phases=NO_SHRINK, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(autouse=True, scope="module")
def _at_once() -> Iterator[None]:
    """Bulk puts from the first messages on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_BULK_FROM", 1)
        patch.setattr(writer, "_BULK_AFTER", 0)
        yield


def in_bulk(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    """All at once, or by pieces where one raises."""
    try:
        return list(store.put_many(messages))
    except UsageError:
        raise AssertionError("the messages were chosen so that none raises") from None


def storable(messages: list[Message], folder: Path) -> list[Message]:
    """Those that do not raise UsageError."""
    kept = []
    with MessageStore.open(folder, "rw", SMALL, create=True) as store:
        for one in messages:
            try:
                store.check_message(one)
            except UsageError:
                continue
            kept.append(one)
    return kept


@SLOW
@given(MESSAGES)
def test_put_many_leaves_the_files_of_single_puts(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = storable(messages, Path(folder, "tried"))
        bulk = files_after(Path(folder, "bulk"), kept, in_bulk, SMALL)
        assert bulk == files_after(Path(folder, "single"), kept, one_by_one, SMALL)


def test_many_ordinary_messages_fill_many_files(tmp_path: Path) -> None:
    messages = [
        message(
            number % 700, queue_id=number % 3, topic=f"Topic{number % 2}", properties={"KEYS": f"k{number}", "A": "b"}
        )
        for number in range(1500)
    ]
    bulk = files_after(tmp_path / "bulk", messages, in_bulk, SMALL)
    assert bulk == files_after(tmp_path / "single", messages, by_put, SMALL)
    assert len(list((tmp_path / "bulk" / "commitlog").iterdir())) > 10
    assert {kind for kind, _ in records(tmp_path / "bulk")} == {"StoredMessage", "Blank", "Empty"}
    MessageStore.open(tmp_path / "bulk", "rw", SMALL, full_check=True).close()


def test_results_are_a_sequence(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        messages = [message(), message(), message(properties={"INNER_NUM": "1"}), message()]
        results = store.put_many(messages)
        assert len(results) == 4
        assert [one.queue_offset for one in results[:2]] == [0, 1]
        assert results[2].status is PutStatus.MESSAGE_ILLEGAL
        assert results[-1].queue_offset == 2
        assert store.lookup(str(results[3].message_id)).queue_offset == 2
        assert results == list(results)
        assert results != results[:3]
        assert not results.__eq__(4)
        with pytest.raises(IndexError):
            results[4]


def test_a_number_that_is_none_is_told_by_the_whole_way(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put_many([message()])
        with pytest.raises(UsageError):
            store.put_many([message(), message(flag=1 << 70)])
        assert len(store.put_many([])) == 0
    assert len(stored_messages(tmp_path / "s")) == 2


def test_every_write_of_a_stretch_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def note(operation: str, path: str, offset: int, length: int) -> None:
        if operation == "write" and "/commitlog/" in path:
            seen.append((offset, length))

    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        store.put(message())
        monkeypatch.setattr(io, "observer", note)
        results = store.put_many([message()] * 10)
        size = (results[1].physical_offset or 0) - (results[0].physical_offset or 0)
        monkeypatch.undo()
    assert seen == [(size, 10 * size)]


# ---- columns


def columns_of(messages: Sequence[Message]) -> Any:
    """A batch of the same messages."""
    return pa.record_batch(
        {
            "topic": pa.array([one.topic for one in messages], pa.string()).dictionary_encode(),
            "body": pa.array([one.body for one in messages], pa.binary()),
            "queue_id": pa.array([one.queue_id for one in messages], pa.int32()),
            "flag": pa.array([one.flag for one in messages], pa.int32()),
            "sys_flag": pa.array([one.sys_flag for one in messages], pa.int32()),
            "born_timestamp": pa.array([one.born_timestamp for one in messages], pa.timestamp("ms", "UTC")),
            "born_host": pa.array([str(one.born_host) for one in messages], pa.string()),
            "reconsume_times": pa.array([one.reconsume_times for one in messages], pa.int32()),
            "prepared_transaction_offset": pa.array([one.prepared_transaction_offset for one in messages], pa.int64()),
            "properties": pa.array(
                [list(one.properties.items()) for one in messages], pa.map_(pa.string(), pa.string())
            ),
            "stored_properties": pa.array([one.property_bytes for one in messages], pa.binary()),
        }
    )


def through_columns(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    if not messages:
        return []
    batch = columns_of(messages)
    # a slice of a larger batch, whose arrays do not begin at 0
    batch = (
        pa.Table.from_batches([batch, batch, batch])
        .combine_chunks()
        .to_batches()[0]
        .slice(len(messages), len(messages))
    )
    assert store._writer is not None
    return list(store.put_columns(batch).results(store._writer._store_host))


def fit_for_columns(one: Message) -> bool:
    numbers = one.queue_id, one.flag, one.sys_flag, one.reconsume_times
    longs = one.born_timestamp or 0, one.prepared_transaction_offset
    return (
        all(-(1 << 31) <= number < 1 << 31 for number in numbers)
        and all(number < 1 << 63 for number in longs)
        and one.store_host is None
        and one.sys_flag & 1 == 0
        and "\ud800" not in "".join(one.properties.values())
    )


@SLOW
@given(MESSAGES)
def test_columns_leave_the_files_of_single_puts(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = storable([one for one in messages if fit_for_columns(one)], Path(folder, "tried"))
        bulk = files_after(Path(folder, "bulk"), kept, through_columns, SMALL)
        assert bulk == files_after(Path(folder, "single"), kept, one_by_one, SMALL)


def test_columns_without_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [message(number, properties={"TAGS": f"t{number}"}) for number in range(100)]
    compiled = files_after(tmp_path / "compiled", messages, through_columns, SMALL)
    take_plain_form(monkeypatch, "bulk", bulk)
    assert files_after(tmp_path / "plain", messages, through_columns, SMALL) == compiled
    assert files_after(tmp_path / "many", messages, in_bulk, SMALL) == compiled


def test_columns_of_a_store_that_waits_for_the_disk(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", small(flush_disk_type="SYNC_FLUSH"), create=True) as store:
        assert store.put_columns(columns_of([message(), message()])).stored == 2
    assert len(stored_messages(tmp_path / "s")) == 2


_TEXTS = st.one_of(st.none(), st.text(st.sampled_from("abä\x02"), max_size=3))


@SLOW
@given(
    st.lists(
        st.tuples(_TEXTS, st.one_of(st.none(), st.lists(st.sampled_from(["k", "ö", "l\x02"]), max_size=2))), min_size=1
    )
)
def test_tags_and_keys_make_properties(rows: list[tuple[str | None, list[str] | None]]) -> None:
    messages = []
    for tags, keys in rows:
        properties = {"KEYS": " ".join(keys)} if keys else {}
        messages.append(Message("TopicA", b"x", properties=properties | ({} if tags is None else {"TAGS": tags})))

    def way(store: MessageStore, _messages: Sequence[Message]) -> list[PutResult]:
        batch = pa.record_batch(
            {
                "topic": ["TopicA"] * len(rows),
                "body": pa.array(["x"] * len(rows)),
                "tags": pa.array([tags for tags, _ in rows], pa.string()),
                "keys": pa.array([keys for _, keys in rows], pa.list_(pa.string())),
            }
        )
        assert store._writer is not None
        return list(store.put_columns(batch).results(store._writer._store_host))

    with tempfile.TemporaryDirectory() as folder:
        bulk = files_after(Path(folder, "bulk"), messages, way, SMALL)
        assert bulk == files_after(Path(folder, "single"), messages, one_by_one, SMALL)


def test_null_properties_give_way_to_tags(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "topic": ["T"] * 4,
            "body": pa.array([b"1", b"2", b"3", b"4"], pa.binary_view()),
            "tags": ["a", "b", None, "d"],
            "properties": pa.array([None, [("X", "y")], [], None], pa.map_(pa.string(), pa.string())),
        }
    )
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        assert store.put_columns(batch).stored == 4
        assert store.put_columns(batch.slice(1, 2)).stored == 2
    found = [one.property_bytes for one in stored_messages(tmp_path / "s")]
    tags, others = b"TAGS\x01a\x02", b"X\x01y\x02"
    assert found == [tags, others, b"", b"TAGS\x01d\x02", others, b""]


def test_a_name_that_comes_twice_counts_once(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.string())
    properties = pa.array([[("A", "1")], [("A", "1"), ("B", "2"), ("A", "3")], [("C", "4")]], kind)
    batch = pa.record_batch({"topic": ["T"] * 3, "body": ["x"] * 3, "properties": properties})
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        assert store.put_columns(batch).stored == 3
    assert stored_messages(tmp_path / "s")[1].properties() == {"A": "3", "B": "2"}


def test_stored_forms_are_kept(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "topic": ["T"] * 3,
            "body": [b"plain", b"plain", b"x"],
            "sys_flag": [0x301, 0x301, 0x10],
            "stored_body": pa.array([None, b"packed", None], pa.binary()),
            "stored_properties": pa.array([b"A\x01b\x02", None, None], pa.binary()),
        }
    )
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        assert store.put_columns(batch).stored == 3
    first, second, third = stored_messages(tmp_path / "s")
    assert first.body != b"plain"
    assert (first.property_bytes, second.body) == (b"A\x01b\x02", b"packed")
    assert third.sys_flag == 0


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": ["T"]}, "needs a body"),
        ({"body": ["b"]}, "needs a topic"),
        ({"topic": pa.array([None], pa.string()), "body": ["b"]}, "needs a topic"),
        ({"topic": ["T"], "body": ["b"], "tag": ["x"]}, "no column 'tag'"),
        ({"topic": ["T"], "body": ["b"], "queue_id": ["x"]}, "cannot be stored"),
        ({"topic": ["T"], "body": ["b"], "keys": [["a b"]]}, "without spaces"),
        ({"topic": ["T"], "body": ["b"], "keys": ["a"]}, "must be a list"),
        ({"topic": ["T"], "body": ["b"], "properties": ["a"]}, "must be a map"),
        ({"topic": ["T"], "body": ["b"], "born_host": ["nowhere"]}, "neither IPv4"),
        ({"topic": [5], "body": [1.5]}, "cannot be stored"),
        (
            {"topic": ["T"], "body": ["b"], "properties": pa.array([[("A", None)]], pa.map_(pa.string(), pa.string()))},
            "without a value",
        ),
    ],
)
def test_columns_that_cannot_be_stored(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        with pytest.raises(UsageError, match=said):
            store.put_columns(pa.record_batch(columns))
        assert (
            store.put_columns(
                pa.record_batch({"topic": pa.array([], pa.string()), "body": pa.array([], pa.binary())})
            ).stored
            == 0
        )


def test_hostile_arrays_are_refused(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 99, 2)))
    wild = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])
    latin = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff")])
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for columns in (
            {"topic": ["T", "T"], "body": wild},
            {"topic": latin, "body": ["b"]},
            {"topic": ["T"], "body": ["b"], "tags": latin},
        ):
            with pytest.raises(UsageError, match="cannot be stored"):
                store.put_columns(pa.record_batch(columns))


def test_a_kill_in_the_middle_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    script = """
        import sys
        from rmqctl.formats.message import Message
        from rmqctl.store.message_store import MessageStore
        from rmqctl.store.write import writer
        from tests.store.write.writing import SMALL
        writer._BULK_FROM, writer._BULK_AFTER = 1, 0
        store = MessageStore.open(sys.argv[1], "rw", SMALL, create=True)
        while True:
            messages = [Message("TopicA", b"x" * size, size % 3, 0, {"KEYS": "k"}) for size in range(500)]
            print(store.put_many(messages)[-1].physical_offset, flush=True)
    """
    process = run_python(script, tmp_path / "s")
    answered = [int(line) for line, _ in zip(lines_of(process), range(20), strict=False)]
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    with MessageStore.open(tmp_path / "s", "r", SMALL) as store:
        store.recover()
    found = stored_messages(tmp_path / "s")
    assert set(answered) <= {one.physical_offset for one in found}
    for queue_id in range(3):
        offsets = [one.queue_offset for one in found if one.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))
    MessageStore.open(tmp_path / "s", "rw", SMALL, full_check=True).close()
