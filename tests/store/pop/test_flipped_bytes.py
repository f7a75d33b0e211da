"""Bytes of POP's records changed one at a time: a record is decoded or refused, and nothing fails."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store import Message, MessageStore
from rmqctl.store.options import Events
from rmqctl.store.pop.columns import PopColumns
from rmqctl.store.pop.records import KvEntry, PopCheckpoint, RecordError, doubts, kv_entry, revive_record
from tests.features import feature_store, feature_truth

_SEED = 7
_REVIVE = ("rmq_sys_REVIVE_LOG_c", 0)


def _flipped(data: bytes) -> Iterator[bytes]:
    for at, byte in enumerate(data):
        for other in {*(byte ^ 1 << bit for bit in range(8)), 0, 0xFF} - {byte}:
            yield data[:at] + bytes((other,)) + data[at + 1 :]


def _outcome(columns: PopColumns, number: int) -> None:
    totals = columns.totals(number)
    messages = list(columns.messages(lambda owner: True))
    by_state = sum(one.in_flight + one.overdue + one.acknowledged + one.lost for one in totals.values())
    assert by_state == len(messages)
    assert len(columns.count_from([0] * len(columns.owners))) == len(columns.ends()) == len(columns.owners)


@pytest.mark.parametrize("name", ["pop-fs", "pop-fs-v2"])
def test_records_of_the_revive_topic(name: str) -> None:
    columns, refused, taken = PopColumns(), 0, 0
    chosen = {row["tag"]: row for row in feature_truth(name, "reviveRecord")}
    assert chosen.keys() == {"ck", "ack", "bAck"}
    for tag, row in chosen.items():
        for body in _flipped(json.dumps(row["body"]).encode()):
            try:
                record = revive_record(tag, body)
            except RecordError:
                refused += 1
                continue
            assert record is not None
            doubts(record, None)
            taken += 1
            if isinstance(record, PopCheckpoint):
                columns.add(record, _REVIVE, (taken, taken, taken), is_lost=bool(taken & 1))
            else:
                columns.add_ack(record, _REVIVE, taken, is_lost=bool(taken & 1))
    assert min(refused, taken) > 100
    _outcome(columns, 1_795_653_490_000)


def test_values_of_kv_store() -> None:
    row = next(row for row in feature_truth("pop-kv", "rocks") if row["db"] == "kvStore")
    columns, refused, taken = PopColumns(), 0, 0
    for value in _flipped(bytes.fromhex(row["value"])):
        try:
            entry = kv_entry(value)
        except RecordError:
            refused += 1
            continue
        assert isinstance(entry, KvEntry)
        entry.key()
        columns.add_entry(entry)
        taken += 1
    assert min(refused, taken) > 100
    _outcome(columns, 1_795_653_490_000)


@pytest.mark.parametrize(
    ("name", "pattern", "count"),
    [
        ("pop-kv", "kvStore/*.sst", 60),
        ("pop-kv", "kvStore/MANIFEST-*", 60),
        ("pop-kv-crash", "kvStore/*.log", 60),
        ("pop-fs", "config/consumerOrderInfo.json", 120),
        ("pop-kv", "config/consumerOffset.json", 60),
    ],
)
def test_files_with_state_of_pop(name: str, pattern: str, count: int, tmp_path: Path) -> None:
    """Whatever a byte is: an answer, or damage that is reported."""
    store = feature_store(name, tmp_path)
    (store / "config" / "consumerOrderInfo.json.bak").unlink(missing_ok=True)
    path = max(store.glob(pattern), key=lambda one: one.stat().st_size)
    data, chance = path.read_bytes(), random.Random(_SEED)
    assert data
    for _ in range(count):
        at, byte = chance.randrange(len(data)), chance.randrange(256)
        path.write_bytes(data[:at] + bytes((byte,)) + data[at + 1 :])
        damage: list[CorruptError] = []
        with MessageStore.open(store) as opened:
            state = opened.pop(now=0, events=Events(damage=damage.append))
            list(state.groups())
            list(state.messages())


def test_acknowledgements_alone(tmp_path: Path) -> None:
    """Of a checkpoint that is settled: a broker drops them."""
    body = {"c": "g", "t": "T", "q": 0, "so": 0, "pt": 1, "ao": 0, "bn": "b"}
    with MessageStore.open(tmp_path, "rw", create=True) as store:
        store.put(Message(_REVIVE[0], json.dumps(body).encode(), queue_id=0, properties={"TAGS": "ack"}))
    with MessageStore.open(tmp_path) as store:
        assert list(store.pop(now=0).groups()) == []
        assert list(store.pop(now=0).messages()) == []
        assert not [one for one in store.check() if one.kind.family == "POP"]


@pytest.mark.parametrize("topic", ["../x", "\ud800", "a" * 300, "T\0", "%RETRY%"])
def test_names_of_any_kind(topic: str, tmp_path: Path) -> None:
    body = {"c": topic, "t": topic, "q": 0, "so": 0, "pt": 1, "it": 1, "n": 1, "d": [0], "bn": "b"}
    with MessageStore.open(tmp_path, "rw", create=True) as store:
        store.put(Message(_REVIVE[0], json.dumps(body).encode(), queue_id=0, properties={"TAGS": "ck"}))
    with MessageStore.open(tmp_path) as store:
        (one,) = store.pop(now=0).messages()
        assert (one.topic, one.state, bool(one.detail)) == (topic, "in-flight", True)
        assert [row.in_flight for row in store.pop(now=0).groups()] == [1]
        list(store.check())
    entry = {"groupId": topic, "topicId": topic, "queueId": 0, "offset": 0, "popTime": 1, "invisibleTime": 1}
    assert kv_entry(json.dumps(entry).encode()).key()
