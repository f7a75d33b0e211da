"""What stores of real brokers have in flight by POP, against what their clients did and what Java sees."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store import MessageStore
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.pop import load
from rmqctl.store.pop.load import kv_entries, revive_messages
from rmqctl.store.pop.records import KvEntry, PopCheckpoint, revive_record
from rmqctl.store.pop.state import LOST, OVERDUE, PopMessage, PopOffsets
from tests.features import feature_store, feature_truth

FS = ("pop-fs", "pop-fs-533", "pop-fs-v2", "pop-fs-crash")
KV = ("pop-kv", "pop-kv-crash")
_LONG = {"so": "start", "pt": "popped_at", "it": "invisible", "q": "queue_id", "c": "group", "t": "topic"}

Key = tuple[str, str, int, int, int]


def _stopped(name: str) -> int:
    return next(int(row["at"]) for row in feature_truth(name, "did") if row["what"] == "stopped")


def _topic(group: str, topic: str, handle: list[str]) -> str:
    """The topic that a message was popped from, by the fifth field of its handle (POP_CK)."""
    return {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}[handle[4]]


def _as_clients_know(name: str) -> dict[Key, tuple[int, bool, int]]:
    """Until when each message was handed out that clients have popped, whether they are done with it, and its retries;
    by group, topic, queue, queue offset and time of the pop."""
    found: dict[Key, tuple[int, bool, int]] = {}

    def done(row: dict[str, Any], text: str) -> Key:
        handle = text.split(" ")
        key = (row["group"], row["topic"], int(handle[6]), int(handle[7]), int(handle[1]))
        found[key] = (found[key][0], True, found[key][2])
        return key

    for row in feature_truth(name, "did"):
        if row["what"] == "pop":
            for one in row["messages"]:
                topic = _topic(row["group"], row["topic"], one["popCk"].split(" "))
                key = (row["group"], topic, one["queueId"], one["queueOffset"], row["popTime"])
                found[key] = (row["popTime"] + row["invisible"], False, one["reconsumeTimes"])
        elif row["what"] == "ack":
            done(row, row["popCk"])
        elif row["what"] == "batchAck":
            for text in row["popCks"]:
                done(row, text)
        elif row["what"] == "changeInvisible":
            handle = row["newCk"].split(" ")
            until = int(handle[1]) + int(handle[2])
            retries = found[done(row, row["popCk"])][2]
            found[row["group"], row["topic"], row["queueId"], row["offset"], row["popTime"]] = (until, False, retries)
    return found


def _messages(name: str, folder: Path) -> dict[Key, PopMessage]:
    with MessageStore.open(feature_store(name, folder)) as store:
        found = store.pop(now=_stopped(name)).messages()
        return {(one.group, one.topic, one.queue_id, one.queue_offset, one.popped_timestamp): one for one in found}


@pytest.mark.parametrize("name", FS)
def test_in_flight_is_what_clients_have_not_acknowledged(name: str, tmp_path: Path) -> None:
    now, found, expected = _stopped(name), _messages(name, tmp_path), _as_clients_know(name)
    assert found.keys() <= expected.keys()
    for key, (until, is_done, retries) in expected.items():
        if key not in found:
            # acknowledged in a buffer, revived by then, or of an ordered pop that a killed broker had not written
            assert is_done or until < now or key[0] == "g-fifo", key
            continue
        one = found[key]
        state = "acknowledged" if is_done else "in-flight" if until > now else "overdue"
        assert (one.state, one.visible_timestamp, one.attempt) == (state, until, retries + 1), key
    assert len(found) > 40


@pytest.mark.parametrize("name", KV)
def test_what_kv_store_keeps_is_not_acknowledged(name: str, tmp_path: Path) -> None:
    now, found, expected = _stopped(name), _messages(name, tmp_path), _as_clients_know(name)
    for key, one in found.items():
        until, is_done, retries = expected[key]
        assert (one.visible_timestamp, one.attempt, one.state == "acknowledged") == (until, retries + 1, is_done)
    if not name.endswith("crash"):
        # a buffer of 10 s goes with a killed broker
        waits = {key for key, (until, is_done, _) in expected.items() if until > now and not is_done}
        assert waits == {key for key, one in found.items() if one.state == "in-flight"}


@pytest.mark.parametrize("name", FS)
def test_every_record_decodes_as_java_sees_it(name: str) -> None:
    rows = feature_truth(name, "reviveRecord")
    assert {row["tag"] for row in rows} >= {"ck", "ack", "bAck"}
    for row in rows:
        body = row["body"]
        record = revive_record(row["tag"], json.dumps(body).encode())
        assert record is not None
        for short, field in _LONG.items():
            if short in body:
                assert getattr(record, field) == body[short]
        if isinstance(record, PopCheckpoint):
            assert (list(record.distances), record.deadline) == (body["d"], body["reviveTime"])
            assert record.suspend is body.get("sp", False)
        else:
            assert record.offsets == body.get("aol", [body["ao"]])


@pytest.mark.parametrize("name", FS)
def test_records_that_are_not_settled(name: str, tmp_path: Path) -> None:
    """Those behind the revive group's offsets, and those that the timer has not delivered."""
    delivered = {row["uniqKey"] for row in feature_truth(name, "reviveRecord") if row["in"] == "revive"}
    with MessageStore.open(feature_store(name, tmp_path)) as store:
        offsets = PopOffsets(store.reader)
        found = {one.message.physical_offset for one in revive_messages(store.reader, offsets.committed)}
        expected = {
            row["phyOffset"]
            for row in feature_truth(name, "reviveRecord")
            if (row["in"] == "timer" and row["uniqKey"] not in delivered)
            or (row["in"] == "revive" and row["queueOffset"] > _settled(offsets, row["reviveQueueId"]))
        }
    assert found == expected


def _settled(offsets: PopOffsets, queue_id: int) -> int:
    offset = offsets.committed("CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_DefaultCluster", queue_id)
    return -1 if offset is None else offset


@pytest.mark.parametrize("name", KV)
def test_entries_of_kv_store_are_what_java_reads(name: str, tmp_path: Path) -> None:
    with MessageStore.open(feature_store(name, tmp_path)) as store:
        found = dict(kv_entries(store.reader))
    rows = [row for row in feature_truth(name, "rocks") if row["db"] == "kvStore"]
    assert {key.hex() for key in found} == {row["key"] for row in rows}
    for row in rows:
        value, entry = json.loads(bytes.fromhex(row["value"])), found[bytes.fromhex(row["key"])]
        assert isinstance(entry, KvEntry)
        assert entry.key().hex() == row["key"]
        names = ("groupId", "topicId", "queueId", "offset", "popTime", "invisibleTime", "retryFlag", "attemptTimes")
        assert entry == (*(value[one] for one in names), value["suspend"])


def test_a_restart_hands_out_the_last_pop_of_kv_store_again(tmp_path: Path) -> None:
    (row,) = (row for row in feature_truth("pop-kv", "did") if row["what"] == "offsets")
    begun, ended = row["table"]["offsetTable"], row["table"]["pullOffsetTable"]
    expected = {key: sum(end - begun[key][queue] for queue, end in ends.items()) for key, ends in ended.items()}
    with MessageStore.open(feature_store("pop-kv", tmp_path)) as store:
        found = {f"{one.topic}@{one.group}": one.again_at_restart for one in store.pop().groups() if one.way == "kv"}
    assert found == expected


def _with_pulls(store: Path, committed: dict[str, dict[int, int]], pulled: dict[str, dict[int, int]]) -> Path:
    """The store with offsets of consumers that pull, as 5.5.0 writes them."""
    path = store / "config/consumerOffset.json"
    text = path.read_text()
    for table, more in (("offsetTable", committed), ("pullOffsetTable", pulled)):
        entries = ",".join(
            f'"{key}":{{{",".join(f"{queue}:{offset}" for queue, offset in one.items())}}}' for key, one in more.items()
        )
        text, count = re.subn(rf'("{table}"\s*:\s*{{)', rf"\1{entries},", text)
        assert count == 1
    path.write_text(text)
    return store


def test_pull_offsets_of_ordinary_consumers_are_no_pops(tmp_path: Path) -> None:
    """As 5.5.0 left them of a consumer that keeps its offsets itself, and of one that had not committed yet."""
    pulled = {"Jobs@g-own": {0: 20, 1: 20}, "Jobs@g-push": {0: 20}, "%RETRY%g-push@g-push": {0: 0}}
    for name in ("pop-kv", "pop-fs"):
        with MessageStore.open(feature_store(name, tmp_path / "before")) as store:
            before = list(store.pop().groups())
        folder = _with_pulls(feature_store(name, tmp_path / "after"), {"Jobs@g-push": {0: 4}}, pulled)
        with MessageStore.open(folder) as store:
            assert list(store.pop().groups()) == before
            assert not store.pop().is_of_last_pop("g-own", "Jobs", 0, 5)


def test_pops_after_the_offsets_were_written_are_handed_out_again(tmp_path: Path) -> None:
    """A broker that is killed has written its pull offsets up to 5 s before, and each entry at once."""
    folder = feature_store("pop-kv", tmp_path)
    path = folder / "config/consumerOffset.json"
    path.write_text(
        re.sub(r'"pullOffsetTable"\s*:.*', '"pullOffsetTable":{"Jobs@g-work":{3:7}}}', path.read_text(), flags=re.S)
    )
    with MessageStore.open(folder) as store:
        entries = [entry for _, entry in kv_entries(store.reader) if isinstance(entry, KvEntry)]
        popped = [one for one in entries if (one.group, one.topic, one.retry_flag) == ("g-work", "Jobs", 0)]
        begun = PopOffsets(store.reader)
        expected = 0
        for queue_id in {one.queue_id for one in popped}:
            end = 1 + max(one.offset for one in popped if one.queue_id == queue_id)
            expected += max(0, end - (begun.committed("g-work", "Jobs", queue_id) or 0))
        found = {(one.group, one.topic): one.again_at_restart for one in store.pop().groups() if one.way == "kv"}
    assert found["g-work", "Jobs"] == expected > 1


def test_no_restart_hands_out_again_what_checkpoints_keep(tmp_path: Path) -> None:
    with MessageStore.open(feature_store("pop-fs", tmp_path)) as store:
        assert [one.again_at_restart for one in store.pop().groups()] == [0, 0, 0, 0]


def test_locks_of_ordered_pops(tmp_path: Path) -> None:
    with MessageStore.open(feature_store("pop-fs", tmp_path)) as store:
        (group,) = (one for one in store.pop(now=_stopped("pop-fs")).groups() if one.group == "g-fifo")
        (later,) = (one for one in store.pop(now=_stopped("pop-fs") + 700_000).groups() if one.group == "g-fifo")
    assert (group.way, group.in_flight, group.overdue, group.acknowledged) == ("ordered", 4, 0, 2)
    assert "queue 0 is locked until 2026-11-26T00:44:55.804Z, but for attempt attempt-430" in group.detail
    # what changeInvisible said of one message counts for it
    assert "queue 1 is locked until 2026-11-26T00:49:56.311Z" in group.detail
    assert (later.in_flight, later.overdue, later.detail) == (0, 4, "")


def test_lag_counts_what_is_in_flight(tmp_path: Path) -> None:
    """As a broker counts: behind the offset, and handed out (ConsumerLagCalculator#getConsumerLagStats)."""
    waits = [key for key, (until, is_done, _) in _as_clients_know("pop-fs").items() if not is_done]
    with MessageStore.open(feature_store("pop-fs", tmp_path)) as store:
        for row in store.groups("g-work", "Jobs"):
            assert row.max_offset is not None
            assert row.offset is not None
            held = sum(key[:3] == ("g-work", "Jobs", row.queue_id) for key in waits) - {0: 5, 3: 1}.get(
                row.queue_id or 0, 0
            )
            assert (row.lag, row.in_flight or 0) == (row.max_offset - row.offset + held, held)


def test_why_a_message_came_again(tmp_path: Path) -> None:
    with MessageStore.open(feature_store("pop-fs", tmp_path)) as store:
        changed = _evidence(store, "job-7")
        missed = _evidence(store, "job-12")
    assert "came again because a client changed its invisible time at 2026-11-26T00:38:15.098Z to end at" in changed
    assert "came again because its invisible time was over at 2026-11-26T00:38:15.804Z without" in missed
    assert "in flight until 2026-11-26T00:46:44.516Z, attempt 2" in missed


def _evidence(store: MessageStore, key: str) -> str:
    (answer,) = store.where(key, now=_stopped("pop-fs"))
    return "\n".join(step.detail for step in answer.evidence if step.group == "g-work")


@pytest.mark.late
def test_records_that_a_broker_passes_over_after_7_days_are_lost(tmp_path: Path) -> None:
    with MessageStore.open(feature_store("pop-fs", tmp_path)) as store:
        soon = list(store.pop(now=_stopped("pop-fs") + 6 * 86_400_000).messages())
        late = list(store.pop(now=_stopped("pop-fs") + 8 * 86_400_000).messages())
    states = Counter((one.state, after.state) for one, after in zip(soon, late, strict=True))
    assert states[OVERDUE, LOST] > 0
    assert {pair for pair in states if pair[0] != pair[1]} == {(OVERDUE, LOST)}
    told = {one.detail for one in late if one.state == LOST}
    assert all("no broker that starts now delivers its record" in one for one in told)


def test_check_reads_once_what_waits_in_the_timer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = feature_store("pop-fs-crash", tmp_path)

    def found(*, is_read_again: bool) -> list[object]:
        with monkeypatch.context() as patched, MessageStore.open(store) as opened:
            if is_read_again:
                patched.setattr(LogSeen, "take_timer", lambda seen: None)
            else:
                patched.delattr(load, "pending_messages")
            return [finding.row() for finding in opened.check()]

    assert found(is_read_again=False) == found(is_read_again=True) != []
