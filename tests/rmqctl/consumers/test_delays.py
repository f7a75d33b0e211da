"""`rmqctl delays`: what the broker had delivered and what not, offsets that lead nowhere, damage."""

from __future__ import annotations

import json
import lzma
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rmqctl.store.message_store as wiring
from rmqctl.formats.layouts import TIMER_CHECKPOINT, TIMER_LOG_UNIT
from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.features import FOLDER as FEATURES
from tests.features import feature_store
from tests.goldens import FOLDER, GoldenStore, truth
from tests.opened import store_path
from tests.rmqctl.damaging import damage_body
from tests.rmqctl.looking import run

TOPIC = "SCHEDULE_TOPIC_XXXX"


def test_as_the_broker_said() -> None:
    done = run("delays", "-s", store_path("broker-real"), "--json")
    never = any(row["state"] == "not-delivered" for row in done.objects)  # by the day of the test
    assert done.code == (exit_codes.DAMAGE_OR_NOTHING if never else exit_codes.OK)
    levels = [row for row in done.objects if row["kind"] == "level"]
    text = (FOLDER / "broker-real.admin.json").read_text(encoding="utf-8")
    said: dict[str, Any] = json.loads(text)["topicStats[min,max,lastUpdate]"][TOPIC]
    ends = {int(name.rpartition("/")[2]) + 1: values[1] for name, values in said.items() if values[1]}
    assert {row["level"]: row["max_offset"] for row in levels} == ends
    # level 1 was delivered in whole, of level 14 (10 minutes) the broker did not see the end
    assert [(row["level"], row["pending"]) for row in levels] == [(1, 0), (14, 5)]
    assert levels[1]["state"] in ("waiting", "overdue")  # by the day of the test
    rows = [row for row in truth("broker-real").messages if (row["topic"], row["queueId"]) == (TOPIC, 13)]
    first = min(rows, key=lambda row: int(row["queueOffset"]))
    shown = done.objects[1]
    assert shown["first_due_timestamp"] == first["storeTimestamp"] + 600_000
    properties = first["properties"]
    assert (shown["target_topic"], shown["target_queue_id"]) == (properties["REAL_TOPIC"], int(properties["REAL_QID"]))
    assert shown["last_due_timestamp"] == max(row["storeTimestamp"] for row in rows) + 600_000


def test_without_offsets_all_is_pending_which_is_told() -> None:
    done = run("delays", "-s", store_path("features"), "--json")
    assert done.code == exit_codes.OK
    assert "a broker delivers all" in done.err
    counts = {row["level"]: row["pending"] for row in done.objects}
    stored = [row["queueId"] + 1 for row in truth("features").messages if row["topic"] == TOPIC]
    assert counts == {level: stored.count(level) for level in set(stored)}


def test_an_offset_past_the_end(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:71,14:9}}', encoding="utf-8")
    (row,) = [row for row in run("delays", "-s", store, "--json").objects if row["level"] == 14]
    assert (row["state"], row["pending"]) == ("past-end", 0)
    assert "4 messages past the end" in row["detail"]


def test_a_damaged_message_is_not_called_delivered(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    rows = [row for row in truth("broker-real").messages if (row["topic"], row["queueId"]) == (TOPIC, 13)]
    damage_body(store, rows[0])
    done = run("delays", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    row = done.objects[1]
    assert (row["state"], row["pending"], row["target_topic"]) == ("damaged", 5, None)
    # the queue has it all the same
    assert row["first_due_timestamp"] == rows[0]["storeTimestamp"] + 600_000


def test_none() -> None:
    done = run("delays", "-s", store_path("clean"))
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "no message was ever delayed" in done.err


def test_undelivered_none_where_a_broker_delivered_all() -> None:
    done = run("delays", "-s", store_path("broker-real"), "--undelivered", "--json")
    assert (done.code, done.objects) == (exit_codes.OK, [])
    assert "every delayed message that a level or the timer passed has a copy" in done.err


def test_undelivered_messages_that_a_level_skipped(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:71,14:3}}', encoding="utf-8")
    stored = {row["queueOffset"]: row for row in truth("broker-real").messages if _is_level(row, 14)}
    done = run("delays", "-s", store, "--undelivered", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert [row["physical_offset"] for row in done.objects] == [stored[slot]["commitLogOffset"] for slot in range(3)]
    for row in done.objects:
        message = stored[row["queue_offset"]]
        assert (row["level"], row["state"]) == (14, "not-delivered")
        assert row["unique_key"] == message["properties"]["UNIQ_KEY"]
        assert row["target_topic"] == message["properties"]["REAL_TOPIC"]
        assert row["due_timestamp"] == message["storeTimestamp"] + 600_000


def test_undelivered_is_unknown_where_another_broker_may_have_the_copy(
    golden_store: GoldenStore, tmp_path: Path
) -> None:
    """As 5.5.0 and 5.3.3 do: a slave that acts as master delivers to another broker, and a copy of it is here never."""
    store, conf = golden_store("broker-real"), tmp_path / "broker.conf"
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:71,14:3}}', encoding="utf-8")
    acting = "brokerRole=SLAVE\nenableSlaveActingMaster=true\n"
    for text, state in ((acting, "not-delivered"), (f"{acting}enableRemoteEscape=true\n", "unknown")):
        conf.write_text(text, encoding="ascii")
        done = run("delays", "-s", store, "-c", conf, "--undelivered", "--json")
        assert [row["state"] for row in done.objects] == [state] * 3
        assert ("send it again" in done.err, "another broker" in done.err) == (state != "unknown", state == "unknown")
        place = (TOPIC, "13", "0")
        (found,) = run("where", *place, "-s", store, "-c", conf, "--json").objects
        assert ("another broker may have it" in json.dumps(found["evidence"])) == (state == "unknown")


def test_undelivered_is_unknown_where_damage_may_hide_the_copy(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    rows = truth("broker-real").messages
    first = min((row for row in rows if _is_level(row, 1)), key=lambda row: int(row["queueOffset"]))
    key, topic = first["properties"]["UNIQ_KEY"], first["properties"]["REAL_TOPIC"]
    (copy,) = [row for row in rows if row["topic"] == topic and row["properties"].get("UNIQ_KEY") == key]
    damage_body(store, copy)
    done = run("delays", "-s", store, "--undelivered", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    (row,) = done.objects
    assert (row["unique_key"], row["state"]) == (key, "unknown")


def test_undelivered_without_offsets_is_not_guessed() -> None:
    done = run("delays", "-s", store_path("features"), "--undelivered", "--json")
    assert (done.code, done.objects) == (exit_codes.DAMAGE_OR_NOTHING, [])
    assert "no message of a level is known to be passed" in done.err
    assert "has a copy in its topic" not in done.err


def _is_level(row: dict[str, Any], level: int) -> bool:
    return bool(row["topic"] == TOPIC and row["queueId"] == level - 1)


TIMER = "rmq_sys_wheel_timer"
_FIELDS = ("target_topic", "target_queue_id", "pending", "state")


def _timed(*options: object) -> list[dict[str, Any]]:
    return [row for row in run("delays", *options, "--json").objects if row["kind"] == "timer"]


def _waiting() -> Counter[tuple[str, int]]:
    """Targets of messages of the timer in broker-real of which no delivered copy is there."""
    rows = truth("broker-real").messages
    delivered = {row["keys"] for row in rows if row["topic"] == "Later"}
    left = [row["properties"] for row in rows if row["topic"] == TIMER and row["keys"] not in delivered]
    return Counter((one["REAL_TOPIC"], int(one["REAL_QID"])) for one in left)


def test_what_the_broker_has_on_its_wheel() -> None:
    rows = _timed("-s", store_path("broker-real"))
    assert {(row["target_topic"], row["target_queue_id"]): row["pending"] for row in rows} == _waiting()
    assert sum(row["pending"] for row in rows) == 5
    due = {int(one["properties"]["TIMER_OUT_MS"]) for one in truth("broker-real").messages if one["topic"] == TIMER}
    # an hour later, although the wheel looks at them after half of it (timerRollWindowSlot)
    assert {row["first_due_timestamp"] for row in rows} == {row["last_due_timestamp"] for row in rows} == {max(due)}


def test_without_wheel_and_log_no_broker_delivers_what_waits(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    expected = _timed("-s", store)
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    done = run("delays", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert "send it again" in done.err
    rows = [row for row in done.objects if row["kind"] == "timer"]
    assert {row["state"] for row in rows} == {"not-delivered"}
    assert "no broker delivers it" in rows[0]["detail"]
    assert [row["pending"] for row in rows] == [row["pending"] for row in expected]
    key = next(
        row["keys"] for row in truth("broker-real").messages if row["topic"] == TIMER and row["queueOffset"] == 9
    )
    (answer,) = run("where", "-s", store, key, "--json").objects
    assert answer["state"] == "not-delivered"


def _with_checkpoint(store: Path, **changed: int) -> None:
    path = store / "config" / "timercheck"
    names = [name for name, *_ in TIMER_CHECKPOINT.fields]
    values = dict(zip(names, TIMER_CHECKPOINT.unpack_from(path.read_bytes()), strict=True)) | changed
    path.write_bytes(TIMER_CHECKPOINT.struct.pack(*values.values()).ljust(4096, b"\0"))


def _days_after_it_was_due(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    due = max(int(one["properties"]["TIMER_OUT_MS"]) for one in truth("broker-real").messages if one["topic"] == TIMER)
    monkeypatch.setattr(wiring, "_moment", lambda now: due + days * 86_400_000)


@pytest.mark.late
def test_a_broker_delivers_late_what_it_puts_on_the_wheel_when_it_starts(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("broker-real")
    _days_after_it_was_due(8, monkeypatch)
    assert {row["state"] for row in _timed("-s", store)} == {"not-delivered"}
    _with_checkpoint(store, last_timer_queue_offset=7, master_timer_queue_offset=7)
    by_state: Counter[str] = Counter()
    for row in _timed("-s", store):
        by_state[row["state"]] += row["pending"]
    # the wheel looks back 7 days; the 3 messages of the queue are put there whenever they were due
    assert by_state == {"overdue": 3, "not-delivered": 2}


def test_what_is_not_on_the_wheel_yet_waits_too(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("broker-real")
    _days_after_it_was_due(1, monkeypatch)
    expected = _timed("-s", store)
    size = TIMER_LOG_UNIT.size
    _with_checkpoint(store, last_timer_queue_offset=7, last_timer_log_flush_pos=7 * size, master_timer_queue_offset=7)
    rows = _timed("-s", store)
    assert [[row[name] for name in _FIELDS] for row in rows] == [[row[name] for name in _FIELDS] for row in expected]
    # the log is read to its end, not to the place where it was flushed
    assert (sum(row["on_wheel"] for row in rows), sum(row["to_enqueue"] for row in rows)) == (5, 3)
    # the same where the log is damaged
    log = next((store / "timerlog").iterdir())
    data = bytearray(log.read_bytes())
    data[5 * size : 5 * size + 4] = b"\1\2\3\4"
    log.write_bytes(data)
    done = run("delays", "-s", store, "--json")
    assert "no unit of the timer log" in done.err
    assert sum(row["pending"] for row in done.objects if row["kind"] == "timer") == 5


def test_without_its_checkpoint_a_broker_would_deliver_all_again(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "timercheck").unlink()
    done = run("delays", "-s", store, "--json")
    assert "a broker delivers again what it has delivered" in done.err
    assert sum(row["pending"] for row in done.objects if row["kind"] == "timer") == 10


def test_a_damaged_checkpoint_is_not_called_delivered(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config" / "timercheck").write_bytes(b"short")
    done = run("delays", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    (row,) = [row for row in done.objects if row["kind"] == "timer"]
    assert (row["state"], row["pending"]) == ("unknown", None)
    assert "what was delivered is not known" in row["detail"]


def test_a_queue_that_is_gone_is_not_called_empty(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    shutil.rmtree(store / "consumequeue" / TIMER)
    (row,) = _timed("-s", store)
    assert (row["state"], row["pending"]) == ("unknown", None)
    assert "rmqctl rebuild --queues" in row["detail"]


def test_a_damaged_message_of_the_timer_may_wait(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    rows = [row for row in truth("broker-real").messages if row["topic"] == TIMER]
    damage_body(store, rows[-1])
    done = run("delays", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    timed = [row for row in done.objects if row["kind"] == "timer"]
    assert sum(row["pending"] or 0 for row in timed) == 4
    assert (timed[-1]["state"], timed[-1]["pending"]) == ("damaged", None)


def test_a_level_that_the_configuration_lost_is_stuck(golden_store: GoldenStore, tmp_path: Path) -> None:
    """An update on the command line without quotes leaves the first word: a broker has a timer for level 1 alone."""
    store = golden_store("broker-real")
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s\n")
    level = next(row for row in run("delays", "-s", store, "--json").objects if row["level"] == 14)
    done = run("delays", "-s", store, "-c", conf, "--json")
    stuck = next(row for row in done.objects if row["level"] == 14)
    assert (done.code, stuck["state"], stuck["pending"]) == (exit_codes.DAMAGE_OR_NOTHING, "stuck", level["pending"])
    assert "no broker with this configuration delivers it" in stuck["detail"]
    # the due time is the queue's, whatever the table of levels says now
    assert stuck["first_due_timestamp"] == level["first_due_timestamp"]
    (told,) = run("where", "later-7", "-s", store, "-c", conf, "--json").objects
    assert told["state"] == "not-delivered"
    (before,) = run("where", "later-7", "-s", store, "--json").objects
    due = [[step["timestamp"] for step in one["evidence"] if step["stage"] == "delay"] for one in (told, before)]
    assert due[0] == due[1]
    (found,) = [one for one in run("check", "-s", store, "-c", conf, "--json").objects if one["code"] == "RMQ-OFF-031"]
    assert (found["messages"], found["severity"]) == (level["pending"], "warning")
    assert "RMQ-OFF-031" not in run("check", "-s", store, "--json").out


@pytest.mark.parametrize("name", ["timer-clean-533", "timer-crash"])
def test_undelivered_messages_that_the_timer_skipped(name: str, tmp_path: Path) -> None:
    """The timer's time is past messages that it never delivered, as after a week without a broker."""
    store = feature_store(name, tmp_path)
    listed = ("delays", "-s", store, "--undelivered", "--json")
    done = run(*listed)
    assert (done.code, done.objects) == (exit_codes.OK, []), done.err
    rows = [row for row in run("cat", "-s", store, "--json").objects if row["topic"] in (TIMER, "Later", "Reminders")]
    copies = {row["unique_key"] for row in rows if row["topic"] != TIMER}
    timed = [row for row in rows if row["topic"] == TIMER]
    assert copies & {row["unique_key"] for row in timed}, "some were delivered"
    recalls = {row["properties"]["TIMER_DEL_UNIQKEY"] for row in timed if "TIMER_DEL_UNIQKEY" in row["properties"]}
    assert recalls
    sent = [row for row in timed if "TIMER_DEL_UNIQKEY" not in row["properties"]]
    taken_back = {
        row["unique_key"]
        for row in sent
        for form in ("", "Later+", "Reminders+")
        if form + row["unique_key"] in recalls
    }
    time = sorted(int(row["properties"]["TIMER_OUT_MS"]) for row in timed)[len(timed) * 3 // 4]
    _with_checkpoint(store, last_read_time_ms=time, last_timer_queue_offset=len(timed))
    wanted = [
        (row["queue_offset"], row["properties"]["REAL_TOPIC"], int(row["properties"]["TIMER_OUT_MS"]))
        for row in sent
        if int(row["properties"]["TIMER_OUT_MS"]) < time and row["unique_key"] not in copies | taken_back
    ]
    assert wanted
    done = run(*listed)
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    found = sorted((row["queue_offset"], row["target_topic"], row["due_timestamp"]) for row in done.objects)
    assert found == sorted(wanted)
    assert {(row["kind"], row["level"], row["state"]) for row in done.objects} == {("timer", None, "not-delivered")}


def test_a_message_that_was_put_on_the_wheel_again_is_listed_once(tmp_path: Path) -> None:
    """One that waits longer than the wheel reaches is stored once more; its first place is no second message."""
    sizes = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
    store = tmp_path / "store"
    timed = {"REAL_TOPIC": "Later", "REAL_QID": "0", "TIMER_OUT_MS": "1000", "UNIQ_KEY": "A" * 32}
    with MessageStore.open(store, "rw", sizes, create=True) as opened:
        opened.put(Message(TIMER, b"x", properties=timed))
        opened.put(Message(TIMER, b"x", properties=timed | {"TIMER_ROLL_TIMES": "1"}))
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "timercheck").write_bytes(bytes(4096))
    _with_checkpoint(store, last_read_time_ms=2000, last_timer_queue_offset=2)
    (row,) = run("delays", "-s", store, "--undelivered", "--json").objects
    assert (row["kind"], row["queue_offset"], row["target_topic"]) == ("timer", 1, "Later")


def test_each_waiting_message_in_the_order_of_delivery(tmp_path: Path) -> None:
    store = feature_store("timer-crash", tmp_path)
    with lzma.open(FEATURES / "timer-crash.truth.jsonl.xz", "rt", encoding="utf-8") as lines:
        known = [row for row in map(json.loads, lines) if row["kind"] == "timerPending"]
    # as RocketMQ recovered its wheel; what it rolls is stored once more, and is delivered later
    expected = [row["phyOffset"] for row in known if row["what"] in ("delivers", "rolls")]
    done = run("delays", "-s", store, "--due", "--json")
    assert {row["physical_offset"] for row in done.objects} == set(expected)
    due = [row["due_timestamp"] for row in done.objects]
    assert due == sorted(due)
    assert {row["kind"] for row in done.objects} == {"timer"}
    assert all(row["target_topic"] and row["unique_key"] for row in done.objects)


def test_the_list_of_what_waits_agrees_with_the_counts() -> None:
    store = store_path("broker-real")
    counted = {
        (row["kind"], row["level"]): row["pending"]
        for row in run("delays", "-s", store, "--json").objects
        if row["kind"] == "level" and row["pending"]
    }
    listed = run("delays", "-s", store, "--due", "--json").objects
    assert (
        Counter((row["kind"], row["level"]) for row in listed if row["kind"] == "level")
        == counted
        == {("level", 14): 5}
    )
    first = min((row for row in listed if row["level"] == 14), key=lambda row: int(row["due_timestamp"]))
    assert first == next(row for row in listed if row["level"] == 14)


def test_where_nothing_waits_and_where_both_lists_are_asked_for(golden_store: GoldenStore) -> None:
    store = golden_store("syncflush")
    shutil.rmtree(store / "consumequeue" / TOPIC, ignore_errors=True)
    done = run("delays", "-s", store, "--due")
    assert (done.code, done.out) == (exit_codes.DAMAGE_OR_NOTHING, "")
    assert "no message waits" in done.err
    assert run("delays", "-s", store, "--due", "--undelivered").code == exit_codes.USAGE


def test_a_timer_that_cannot_be_read_leaves_the_levels(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (file,) = (store / "timerlog").iterdir()
    file.unlink()
    file.mkdir()
    done = run("delays", "-s", store, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert [row["state"] for row in done.objects if row["kind"] == "timer"] == ["unknown"]
    assert [row["level"] for row in done.objects if row["kind"] == "level"] == [1, 14]
    assert f"not read: {file}" in done.err
    found = [row for row in run("check", "-s", store, "--json").objects if "code" in row]
    assert [(row["code"], row["file"]) for row in found if row["severity"] == "error"] == [
        ("RMQ-FILE-007", f"timerlog/{file.name}")
    ]
    predicted = run("predict", "-s", store, "--json")
    assert (predicted.code, predicted.objects[0]["timer_reset"]) == (exit_codes.DAMAGE_OR_NOTHING, True)


@pytest.mark.parametrize(("offset", "again"), [(71, 0), (60, 11)])
def test_a_start_delivers_again_what_was_delivered_after_the_offsets_were_written(
    golden_store: GoldenStore, offset: int, again: int
) -> None:
    """A broker writes them every 10 s: those of 5.3.3 and 5.5.0 that were killed did so."""
    store = golden_store("broker-real")
    (store / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{1:{offset},14:0}}}}', encoding="utf-8")
    for broker in ("4.9.8", "5.3.3", "5.5.0"):
        (start,) = run("predict", "-s", store, "--broker", broker, "--json").objects
        assert start["messages_repeated"] == again, start["warnings"]
        assert any(one.endswith(f"delayOffset.json says {offset}") for one in start["warnings"]) == bool(again)
