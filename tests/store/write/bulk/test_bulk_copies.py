"""Copies in bulk leave what single copies leave, and what would be refused is known before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Host, Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.write import writer
from rmqctl.store.write.bulk import bulk
from rmqctl.store.write.prepare import copy_of
from rmqctl.store.write.put import PutResult
from tests.opened import store_path
from tests.quick import sample
from tests.store.native.forms import take_plain_form
from tests.store.same_files import MESSAGES, NOW, files_after
from tests.store.write.writing import SMALL, message, small, stored_messages

pa = pytest.importorskip("pyarrow")
NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)
SLOW = settings(max_examples=25, deadline=None, phases=NO_SHRINK, suppress_health_check=[HealthCheck.too_slow])
TIMES = st.lists(st.sampled_from([None, NOW, NOW, NOW + 1, NOW - 5, 0, 1 << 60]), min_size=40, max_size=40)


@pytest.fixture(autouse=True, scope="module")
def _at_once() -> Iterator[None]:
    """Bulk puts from the first messages on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_BULK_FROM", 1)
        patch.setattr(writer, "_BULK_AFTER", 0)
        yield


def copied_singly(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    return [store.put(one, as_stored=True) for one in messages]


def copied_at_once(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    return list(store.put_many(messages, as_stored=True))


def copied_as_columns(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    assert store._writer is not None
    result = store.put_columns(columns_of(messages), as_stored=True) if messages else None
    return [] if result is None else list(result.results(store._writer._store_host))


def columns_of(messages: Sequence[Message]) -> Any:
    def hosts(found: Sequence[Host | None]) -> Any:
        return pa.array([None if host is None else str(host) for host in found], pa.string())

    properties = [list(one.properties.items()) for one in messages]
    return pa.record_batch(
        {
            "topic": pa.array([one.topic for one in messages], pa.string()),
            "body": pa.array([b"not this one" for _ in messages], pa.binary()),
            "stored_body": pa.array([one.body for one in messages], pa.binary()),
            "queue_id": pa.array([one.queue_id for one in messages], pa.int32()),
            "flag": pa.array([one.flag for one in messages], pa.int32()),
            "sys_flag": pa.array([one.sys_flag for one in messages], pa.int32()),
            "born_timestamp": pa.array([one.born_timestamp for one in messages], pa.timestamp("ms", "UTC")),
            "born_host": hosts([one.born_host for one in messages]),
            "store_timestamp": pa.array([one.store_timestamp for one in messages], pa.timestamp("ms", "UTC")),
            "store_host": hosts([one.store_host for one in messages]),
            "reconsume_times": pa.array([one.reconsume_times for one in messages], pa.int32()),
            "prepared_transaction_offset": pa.array([one.prepared_transaction_offset for one in messages], pa.int64()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
            "stored_properties": pa.array([one.property_bytes for one in messages], pa.binary()),
        }
    )


def fits_columns(one: Message) -> bool:
    numbers = one.queue_id, one.flag, one.sys_flag, one.reconsume_times
    longs = one.born_timestamp or 0, one.store_timestamp or 0, one.prepared_transaction_offset
    texts = [one.topic, *one.properties, *one.properties.values()]
    return (
        all(-(1 << 31) <= number < 1 << 31 for number in numbers)
        and all(number < 1 << 63 for number in longs)
        and "\ud800" not in "".join(texts)
    )


def refused_singly(store: MessageStore, messages: Sequence[Message], as_stored: bool) -> dict[int, str]:
    refused = {}
    for place, one in enumerate(messages):
        try:
            answer = store.check_message(one, as_stored=as_stored)
        except UsageError as error:
            refused[place] = error.message
            continue
        if answer is not None:
            refused[place] = f"{answer.status}: {answer.detail}"
    return refused


def open_new(folder: str | Path, config: StoreConfig = SMALL) -> MessageStore:
    return MessageStore.open(folder, "rw", config, create=True, allocate_ahead=False)


@SLOW
@given(MESSAGES, TIMES)
def test_copies_in_bulk_leave_the_files_of_single_copies(messages: list[Message], times: list[int | None]) -> None:
    timed = [one._replace(store_timestamp=time) for one, time in zip(messages, times, strict=False)]
    messages = timed + messages[len(timed) :]
    messages = [one for one in messages if fits_columns(one)]
    with tempfile.TemporaryDirectory() as folder:
        with open_new(Path(folder, "tried")) as store:
            refused = refused_singly(store, messages, as_stored=True)
            assert store.check_many(messages, as_stored=True) == refused
            if messages:
                assert store.check_columns(columns_of(messages), as_stored=True) == refused
        kept = [one for place, one in enumerate(messages) if place not in refused]
        # after a message without a time a checkpoint keeps what a flush before it said, if there was one
        kept.append(message(5)._replace(store_timestamp=NOW + 2))
        single = files_after(Path(folder, "single"), kept, copied_singly, SMALL)
        assert files_after(Path(folder, "many"), kept, copied_at_once, SMALL) == single
        assert files_after(Path(folder, "columns"), kept, copied_as_columns, SMALL) == single


@SLOW
@given(MESSAGES)
def test_new_messages_are_judged_as_single_ones_are(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_new(folder) as store:
        refused = refused_singly(store, messages, as_stored=False)
        assert store.check_many(messages) == refused
        fitting = [one for one in messages if fits_columns(one) and one.store_host is None]
        if fitting:
            assert store.check_columns(columns_of(fitting)) == refused_singly(store, fitting, as_stored=False)


def test_a_topic_is_asked_for_once_in_all_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with open_new(tmp_path / "s") as store:
        check = store._writing.check

        def noted(one: Message, as_stored: bool) -> PutResult | None:
            asked.append(one.topic)
            return check(one, as_stored)

        monkeypatch.setattr(store._writing, "check", noted)
        accepted: set[str] = set()
        batches = [["A", "bad/name", "A"], ["B", "A"], ["A", "B", "bad/name"]]
        refused = [
            list(store.check_columns(columns_of([Message(one, b"") for one in topics]), accepted=accepted))
            for topics in batches
        ]
    assert (refused, accepted) == ([[1], [], [2]], {"A", "B"})
    assert (asked.count("A"), asked.count("B"), asked.count("bad/name")) == (1, 1, 2)


@pytest.mark.parametrize(
    "name", sample(["clean", "v4-clean", "features", "propcrc", "longtopic", "lmq", "broker-real"], ["features"])
)
def test_goldens_are_copied_as_by_single_puts(name: str, tmp_path: Path) -> None:
    with MessageStore.open(store_path(name)) as source:
        batches = list(source.scan())
        config = source.files.config
    copies = [copy_of(one) for one in stored_messages(store_path(name))]

    def as_scanned(store: MessageStore, _: Sequence[Message]) -> list[PutResult]:
        assert store._writer is not None
        host = store._writer._store_host
        return [one for batch in batches for one in store.put_columns(batch, as_stored=True).results(host)]

    single = files_after(tmp_path / "single", copies, copied_singly, config)
    assert files_after(tmp_path / "columns", copies, as_scanned, config) == single


def test_most_rows_of_a_real_store_are_usual(tmp_path: Path) -> None:
    from rmqctl.store.write.bulk.arrow import rows_of_batch

    with MessageStore.open(store_path("broker-real")) as source:
        rows = [rows_of_batch(batch, is_copy=True) for batch in source.scan()]
    usual = sum(int(one.usual.sum()) for one in rows)
    # the others are delayed or parts of transactions
    assert usual > 0.7 * sum(map(len, rows))


def test_a_copied_topic_opens_no_way_for_new_messages(tmp_path: Path) -> None:
    with open_new(tmp_path / "s") as store:
        copies = [message(topic="a/b", store_timestamp=NOW)] * 3
        if any(not one.status.is_stored for one in store.put_many(copies, as_stored=True)):
            pytest.fail("copies are not judged by their topic")
        assert not store.put(message(topic="a/b")).status.is_stored
        assert not store.put_many([message(topic="a/b")] * 3)[2].status.is_stored


def test_columns_are_one_transaction_of_the_disk_where_puts_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl.store.write.put import Putter

    asked: list[int] = []
    put_many = Putter.put_many

    def counted(self: Putter, messages: Sequence[Message], as_stored: bool, is_batch: bool) -> list[PutResult]:
        asked.append(len(messages))
        return put_many(self, messages, as_stored, is_batch)

    monkeypatch.setattr(Putter, "put_many", counted)
    with open_new(tmp_path / "s", small(flush_disk_type="SYNC_FLUSH")) as store:
        assert store.put_columns(columns_of([message()] * 300)).stored == 300
    assert asked == [256, 44]


def test_copies_without_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [message(number, store_timestamp=NOW + number % 7) for number in range(300)]
    compiled = files_after(tmp_path / "compiled", messages, copied_as_columns, SMALL)
    take_plain_form(monkeypatch, "bulk", bulk)
    assert files_after(tmp_path / "plain", messages, copied_as_columns, SMALL) == compiled


def test_stored_forms_must_be_bytes(tmp_path: Path) -> None:
    with open_new(tmp_path / "s") as store:
        for name in ("stored_body", "stored_properties"):
            batch = pa.record_batch({"topic": ["T"], "body": ["b"], name: ["text"]})
            with pytest.raises(UsageError, match="must be bytes"):
                store.put_columns(batch)
            with pytest.raises(UsageError, match="must be bytes"):
                store.check_columns(batch)


def test_born_hosts_of_a_batch(tmp_path: Path) -> None:
    hosts = ["1.2.3.4:5", None, "[::1]:6", "1.2.3.4:5"]
    batch = pa.record_batch({"topic": ["T"] * 4, "body": ["x"] * 4, "born_host": pa.array(hosts, pa.string())})
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: NOW) as store:
        assert store.put_columns(batch).stored == 4
    found = stored_messages(tmp_path / "s")
    assert [Host(one.born_host_ip, one.born_host_port) for one in found[:2]] == [
        Host(b"\1\2\3\4", 5),
        Message("", b"").born_host,
    ]
    assert found[2].born_host_port == 6
    assert {one.born_timestamp for one in found} == {NOW}
