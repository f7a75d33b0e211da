"""`where` on every golden store: what RocketMQ has is found, and damaged, expired, lost and unknown are told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotFoundError, UnreadPartError, UsageError
from rmqctl.store.answers import steps as copies
from rmqctl.store.answers.steps import Stage, Verdict
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, base_of, is_broken, is_crashed, truth
from tests.opened import damaged_messages, known_messages, reader
from tests.quick import goldens_of
from tests.rmqctl.damaging import damage_body
from tests.store.answers.where.asking import ask, steps

_SAMPLE = 8
# no queue file is left, or none that we read
_WITHOUT_QUEUES = ("rocksdb-double",)


def _opened(store: Path) -> StoreReader:
    return StoreReader(StoreFiles(store))


@pytest.mark.parametrize("name", goldens_of(GOLDENS, "first-gone"))
def test_what_rocketmq_has_is_found(name: str) -> None:
    damaged = damaged_messages(name)
    rows = [row for row in truth(name).messages if row["phyOffset"] not in damaged]
    for row in rows[:: max(1, len(rows) // _SAMPLE)]:
        answer = ask(reader(name), row["phyOffset"], kind="offset").one
        told = {step.physical_offset for step in answer.evidence}
        assert row["phyOffset"] in told or "superseded" in {step.state for step in steps(answer, Stage.HALF)}
        assert answer.state not in (Verdict.DAMAGED, Verdict.ABSENT, Verdict.EXPIRED)
        if is_broken(name) or is_crashed(name) or name in _WITHOUT_QUEUES:
            continue
        own = ask(reader(name), row["topic"], row["queueId"], row["queueOffset"]).found if row["cq"] else []
        for one in own:
            states = {(step.topic, step.queue_id, step.queue_offset): step.state for step in steps(one, Stage.QUEUE)}
            # a message in several queues has slots in all; of copies the delivered one is spoken of
            if one.physical_offset == row["phyOffset"]:
                assert {(unit["topic"], unit["queueId"], unit["offset"]) for unit in row["cq"]} == {
                    place for place, state in states.items() if state == "there"
                }


@pytest.mark.parametrize("name", goldens_of([name for name in GOLDENS if base_of(name)]))
def test_what_is_gone_is_not_called_stored(name: str) -> None:
    """Messages of the store that this one was made from: there, damaged, expired or behind the end, never a guess."""
    there = {row["phyOffset"] for row in truth(name).messages}
    files = reader(name).files
    lost = [row for offset, row in known_messages(name).items() if offset not in there]
    for row in lost[:: max(1, len(lost) // _SAMPLE)]:
        offset = int(str(row["phyOffset"]))
        answer = ask(reader(name), offset, kind="offset").one
        if offset < files.log.min_offset:
            assert answer.state is Verdict.EXPIRED
        else:
            # RocketMQ gives up good messages behind damage, which are found here
            assert answer.msg_id is not None or answer.state in (Verdict.DAMAGED, Verdict.ABSENT)


def test_a_damaged_message(golden_store: GoldenStore) -> None:
    """By its offset, its place and its key; and the group that stands before it is told."""
    store = golden_store("broker-real")
    row = next(
        one
        for one in truth("broker-real").messages
        if (one["topic"], one["queueId"], one["queueOffset"]) == ("Events", 2, 25)
    )
    damage_body(store, row)
    for words in ((row["phyOffset"],), ("Events", 2, 25)):
        asked = ask(_opened(store), *words)
        assert asked.one.state is Verdict.DAMAGED
        assert asked.damage
    groups = {group.group: group.state for group in asked.one.groups}
    assert groups == {"g-events": Verdict.BLOCKED, "g-retry": Verdict.UNREAD}
    by_key = ask(_opened(store), row["keys"])
    assert (by_key.one.state, by_key.one.physical_offset) == (Verdict.DAMAGED, row["phyOffset"])
    behind = ask(_opened(store), "Events", 2, 26, groups=("g-events",)).one
    assert behind.state is Verdict.BLOCKED
    assert "stops at that offset" in steps(behind, Stage.GROUP)[0].detail


def test_expired(golden_store: GoldenStore) -> None:
    name = "first-gone"
    begin = reader(name).files.log.min_offset
    gone = next(row for row in known_messages(name).values() if int(str(row["phyOffset"])) < begin and row["keys"])
    assert ask(reader(name), gone["phyOffset"]).one.state is Verdict.EXPIRED
    assert ask(reader(name), gone["msgId"]).one.state is Verdict.EXPIRED
    # who had read it is known all the same
    store = golden_store(name)
    (store / "config").mkdir(exist_ok=True)
    queue = next(row for row in truth(name).queues if row["min"] > 1)
    table = {f"{queue['topic']}@{group}": {str(queue["queueId"]): offset} for group, offset in (("a", 1), ("b", 0))}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}), encoding="utf-8")
    answer = ask(_opened(store), queue["topic"], queue["queueId"], 0).one
    assert answer.state is Verdict.EXPIRED
    assert {one.group: one.state for one in answer.groups} == {"a": Verdict.READ, "b": Verdict.EXPIRED}
    # what nobody has may have expired, too: that is not known
    assert ask(reader(name), "never-seen").one.state is Verdict.UNKNOWN


def test_not_there() -> None:
    asked = ask(reader("clean"), "never-seen")
    assert (asked.one.state, asked.one.found_by, asked.damage) == (Verdict.ABSENT, None, [])
    assert "inside the message" in ask(reader("clean"), 5).one.sentence
    end = truth("clean").queues[0]
    place = (end["topic"], end["queueId"], end["max"])
    assert ask(reader("clean"), *place).one.state is Verdict.ABSENT
    with pytest.raises(NotFoundError):
        ask(reader("clean"), "no-such-topic", 0, 0)
    for words in ((), ("a", "b"), ("Orders", "x", "0"), ("Orders", 0, -1)):
        with pytest.raises(UsageError):
            ask(reader("clean"), *words)
    # where damage may hide it, its absence is not known
    torn = ask(reader("torn-zero"), "never-seen")
    assert torn.one.state is Verdict.UNKNOWN
    assert torn.damage
    assert ask(reader("gap"), "never-seen").one.state is Verdict.UNKNOWN


@pytest.mark.parametrize("name", ["index-lost", "cq-lost"])
def test_without_index_or_queues_the_log_is_searched(name: str) -> None:
    rows = [row for row in truth(name).messages if row["keys"] and row["sysFlag"] & 12 == 0]
    row = rows[len(rows) // 2]
    asked = ask(reader(name), row["properties"]["UNIQ_KEY"])
    assert row["phyOffset"] in {one.physical_offset for one in asked.found}
    assert any("the whole commitlog is searched" in sentence for sentence in asked.said)
    placed = ask(reader(name), row["topic"], row["queueId"], row["queueOffset"])
    assert row["phyOffset"] in {one.physical_offset for one in placed.found}
    if name == "cq-lost":
        assert placed.one.state is Verdict.NO_SLOT


def test_a_slot_that_leads_nowhere(golden_store: GoldenStore) -> None:
    """What is in the log and not in its queue is found by its place all the same, and called so."""
    store = golden_store("clean")
    queue = max(truth("clean").queues, key=lambda row: row["max"])
    topic, number = queue["topic"], queue["queueId"]
    unit = reader("clean").queue(topic, number).unit(queue["max"] - 3)
    assert unit is not None
    path = max((store / "consumequeue" / topic / str(number)).iterdir())
    with path.open("r+b") as file:  # the last three units
        file.seek((queue["max"] - 3) * 20 - int(path.name))
        file.write(bytes(60))
    asked = ask(_opened(store), topic, number, queue["max"] - 3)
    assert (asked.one.state, asked.one.physical_offset) == (Verdict.NO_SLOT, unit.physical_offset)
    assert steps(asked.one, Stage.QUEUE)[0].state == "missing"


def test_a_slot_that_leads_to_another_message(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    queue = max(truth("clean").queues, key=lambda row: row["max"])
    topic, number, offset = queue["topic"], queue["queueId"], queue["max"] - 9
    own, other = (reader("clean").queue(topic, number).unit(one) for one in (offset, offset + 1))
    assert own is not None
    assert other is not None
    path = max(
        path for path in (store / "consumequeue" / topic / str(number)).iterdir() if int(path.name) <= offset * 20
    )
    with path.open("r+b") as file:
        file.seek(offset * 20 - int(path.name))
        file.write(other.physical_offset.to_bytes(8, "big") + other.size.to_bytes(4, "big"))
    for words in ((topic, number, offset), (own.physical_offset,)):
        answer = ask(_opened(store), *words).one
        assert (answer.state, answer.physical_offset) == (Verdict.NO_SLOT, own.physical_offset)
        (step,) = steps(answer, Stage.QUEUE)
        assert step.state == "wrong"
        assert f"leads to physical offset {other.physical_offset}" in step.detail


def test_what_the_index_does_not_cover_is_walked_over(golden_store: GoldenStore) -> None:
    """One index file in the middle is lost: its messages are found by a walk over what it covered."""
    store = golden_store("clean")
    files = sorted((store / "index").iterdir())
    assert len(files) > 2
    header = reader("clean").files.index.files[1].header
    files[1].unlink()
    middle = (header.begin_physical_offset + header.end_physical_offset) // 2
    row = next(row for row in truth("clean").messages if row["phyOffset"] > middle)
    asked = ask(_opened(store), row["properties"]["UNIQ_KEY"])
    assert asked.one.physical_offset == row["phyOffset"]
    assert [step.state for step in steps(asked.one, Stage.INDEX)] == ["missing"]


def test_filters(golden_store: GoldenStore) -> None:
    """Kept ones are known, and where none is kept nothing is said but what the operator gives."""
    store = golden_store("broker-real")
    row = next(row for row in truth("broker-real").messages if row["topic"] == "Events" and row["tags"] == "Tag2")
    place = (row["topic"], row["queueId"], row["queueOffset"])
    assert steps(ask(_opened(store), *place).one, Stage.FILTER) == []
    given = ask(_opened(store), *place, groups=("g-events",), tags="Tag0 || Tag1").one
    assert given.state is Verdict.FILTERED
    assert steps(ask(_opened(store), *place, groups=("g-events",), tags="Tag2").one, Stage.FILTER)[0].state == "taken"
    kept = {
        "groupFilterData": {
            "g-events": {"expression": "a > 1", "expressionType": "SQL92"},
        }
    }
    filters = {"filterDataByTopic": {"Events": kept}}
    (store / "config" / "consumerFilter.json").write_text(json.dumps(filters), encoding="utf-8")
    groups = {"g-retry": {"subscriptionDataSet": [{"topic": "Events", "expressionType": "TAG", "expression": "Tag1"}]}}
    table = {"subscriptionGroupTable": groups}
    (store / "config" / "subscriptionGroup.json").write_text(json.dumps(table), encoding="utf-8")
    told = {step.group: step for step in steps(ask(_opened(store), *place).one, Stage.FILTER)}
    assert {group: step.state for group, step in told.items()} == {"g-events": "unknown", "g-retry": "passed-over"}
    assert "consumerFilter.json" in told["g-events"].detail


def test_a_group_that_takes_by_pop(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    assert "POP" not in steps(ask(_opened(store), "Events", 4, 0).one, Stage.GROUP)[0].detail
    mode = {"messageRequestModeMap": {"Events": {"g-events": {"mode": "POP"}, "g-retry": {"mode": "PULL"}}}}
    (store / "config" / "messageRequestMode.json").write_text(json.dumps(mode), encoding="utf-8")
    popped, pulled = steps(ask(_opened(store), "Events", 4, 0).one, Stage.GROUP)
    assert ("POP" in popped.detail, "POP" in pulled.detail) == (True, False)


@pytest.mark.parametrize("text", ["{broken", None])
def test_without_offsets_groups_are_unknown(golden_store: GoldenStore, text: str | None) -> None:
    store = golden_store("broker-real")
    for path in store.glob("config/consumerOffset.json*"):
        path.unlink()
        if text is not None:
            path.write_text(text, encoding="utf-8")
    asked = ask(_opened(store), "Events", 4, 0, groups=("g-events",))
    assert asked.one.state is Verdict.UNKNOWN
    how = "is not there" if text is None else "is damaged, and its backup is damaged"
    assert f"consumerOffset.json {how}" in steps(asked.one, Stage.GROUP)[0].detail
    assert bool(asked.damage) == (text is not None)


def test_config_files_that_cannot_be_read_leave_the_rest_of_the_answer(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    files = ("consumerOffset", "subscriptionGroup", "messageRequestMode", "consumerFilter", "delayOffset")
    for name in files:
        path = store / "config" / f"{name}.json"
        path.unlink(missing_ok=True)
        path.mkdir()
    asked = ask(_opened(store), "evt-2")
    assert asked.one.state is Verdict.DEAD
    unread = [error for error in asked.damage if isinstance(error, UnreadPartError)]
    assert len(unread) == len(asked.damage) > 0
    assert {error.message for error in unread} == {"is not a regular file"}


def test_a_key_of_many_messages_is_bounded() -> None:
    shared = [row for row in truth("broker-real").messages if row["topic"] == "Audit"]
    key = shared[0]["properties"]["UNIQ_KEY"]  # of a batch
    asked = ask(reader("broker-real"), key, limit=3)
    assert len(asked.found) == 3
    assert any("17 more messages have the key" in sentence for sentence in asked.said)
    assert "19 other messages have the same unique key" in steps(asked.found[0], Stage.STORED)[-1].detail
    elsewhere = ask(reader("broker-real"), key, topic="Orders").one
    assert elsewhere.state is Verdict.ABSENT
    assert "20 messages of Audit" in elsewhere.sentence


@pytest.mark.parametrize("name", ["clean", "index-lost"])
def test_a_key_of_very_many_messages_is_not_kept_in_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key for row in truth(name).messages for key in (row["keys"] or "").split()]
    key = max(set(keys), key=keys.count)
    newest = max(row["phyOffset"] for row in truth(name).messages if key in (row["keys"] or "").split())
    monkeypatch.setattr(copies, "_MOST", 3)
    asked = ask(reader(name), key, limit=100)
    assert any("3 messages or more" in sentence for sentence in asked.said)
    assert newest in {one.physical_offset for one in asked.found}
    assert len(asked.found) < keys.count(key)


def test_expiry(golden_store: GoldenStore) -> None:
    """By the age of the file and of all before it, in an hour of deleteWhen; the last file never goes."""
    store = golden_store("clean")
    files = sorted((store / "commitlog").iterdir())
    hour, start = 3_600, 1_700_000_000
    for path in files:
        os.utime(path, (start, start))
    os.utime(files[0], (start + 5 * hour, start + 5 * hour))
    config = StoreConfig(
        file_reserved_time=10, delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23"
    )
    opened = StoreReader(StoreFiles(store, config))
    row = next(row for row in truth("clean").messages if row["phyOffset"] > int(files[1].name))
    due = (start + 15 * hour) * 1000
    for now, state in ((due - 1, "kept"), (due, "due"), (due + 9, "due")):
        (step,) = steps(ask(opened, row["phyOffset"], now=now).one, Stage.EXPIRY)
        # the same, whenever it is asked for
        assert (step.state, step.timestamp) == (state, due)
        assert ("goes as soon as a broker runs" in step.detail) == (state == "due")
    last = truth("clean").messages[-1]
    assert steps(ask(opened, last["phyOffset"]).one, Stage.EXPIRY)[0].state == "last-file"


def test_a_number_larger_than_any_offset_is_a_key() -> None:
    asked = ask(reader("broker-real"), "9223372036854775808")
    assert asked.one.state is Verdict.ABSENT
    assert "9223372036854775808 is larger than any physical offset: it is looked for as a key" in asked.said


@pytest.mark.parametrize(
    ("hours", "said"),
    [("25", "deleteWhen names no hour"), ("abc", "a broker stops cleaning at 'abc'"), ("04; 16", "at ' 16'")],
)
def test_expiry_where_no_hour_comes(golden_store: GoldenStore, hours: str, said: str) -> None:
    """As 5.3.3's UtilAll#isItTimeToDo takes them, which a broker starts with."""
    opened = StoreReader(StoreFiles(golden_store("clean"), StoreConfig(delete_when=hours)))
    first = truth("clean").messages[0]
    (step,) = steps(ask(opened, first["phyOffset"]).one, Stage.EXPIRY)
    assert said in step.detail
