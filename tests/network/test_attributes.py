"""Attributes of topics and groups: what a broker takes, and its own words for what it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.network.remoting.codec import RequestCode as Request
from rmqctl.store.config.config_tables import changed_attributes, group_attributes, parsed_change, topic_attributes
from rmqctl.store.config.releases import RELEASES
from tests.network.callers import Writing

V5, V55, V4 = RELEASES["5.3.3"], RELEASES["5.5.0"], RELEASES["4.9.8"]


class _Writing55(Writing):
    release = V55


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "store")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("known", "change", "expected"),
    [
        (None, "", {}),
        (None, "+message.type=FIFO,+cleanup.policy=DELETE", {"message.type": "FIFO", "cleanup.policy": "DELETE"}),
        (None, "+queue.type=BatchCQ,+reserve.time=-1", {"queue.type": "BatchCQ", "reserve.time": "-1"}),
        (None, "+reserve.time=9223372036854775807", {"reserve.time": "9223372036854775807"}),
        ({"message.type": "FIFO"}, "+message.type=DELAY", {"message.type": "DELAY"}),
        ({"message.type": "FIFO"}, "-message.type", {}),
        ({"queue.type": "SimpleCQ"}, "+message.type=NORMAL,", {"queue.type": "SimpleCQ", "message.type": "NORMAL"}),
        ({"other": "left alone"}, "+reserve.time=7", {"other": "left alone", "reserve.time": "7"}),
    ],
)  # fmt: skip
def test_what_is_taken(known: dict[str, str] | None, change: str, expected: dict[str, str]) -> None:
    assert changed_attributes(known, parsed_change(change), topic_attributes(V5)) == expected


_TYPES = "[UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]"
_TYPES_OF_5_5 = "[UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, LITE, NORMAL]"


@pytest.mark.parametrize(
    ("known", "change", "remark"),
    [
        (None, "+message.type=NONSENSE", f"value is not in set: {_TYPES}"),
        (None, "+message.type=PRIORITY", f"value is not in set: {_TYPES}"),
        (None, "+message.type=normal", f"value is not in set: {_TYPES}"),
        (None, "+queue.type=X", "value is not in set: [SimpleCQ, BatchCQ]"),
        (None, "+cleanup.policy=X", "value is not in set: [DELETE, COMPACTION]"),
        (None, "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        (None, "+reserve.time=9223372036854775808", 'For input string: "9223372036854775808"'),
        (None, "+reserve.time=-9223372036854775808", "value is not in range(-1, 9223372036854775807)"),
        (None, "+reserve.time=-9223372036854775809", 'For input string: "-9223372036854775809"'),
        (None, "+reserve.time=1_0", 'For input string: "1_0"'),
        (None, "+a=b", "unsupported key: a"),
        (None, "+lite.topic.expiration=5", "unsupported key: lite.topic.expiration"),
        (None, "-message.type", "only add attribute is supported while creating topic. key: message.type"),
        ({}, "-message.type", "attempt to delete a nonexistent key: message.type"),
        ({}, "+cleanup.policy=DELETE", "attempt to update an unchangeable attribute. key: cleanup.policy"),
        ({"queue.type": "SimpleCQ"}, "-queue.type", "attempt to update an unchangeable attribute. key: queue.type"),
        ({}, "message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ({}, "message.type", "delete attribute format is wrong: message.type"),
        ({}, "+message.type=FIFO,+message.type=DELAY", "key duplication: +message.type"),
        ({"message.type": "FIFO"}, "+message.type=DELAY,-message.type", "alter duplication key. key: message.type"),
        ({}, "++message.type=DELAY", "kv string format wrong."),
        ({}, "+=DELAY", "kv string format wrong."),
    ],
)
def test_what_is_refused(known: dict[str, str] | None, change: str, remark: str) -> None:
    with pytest.raises(RefusedError) as refused:
        changed_attributes(known, parsed_change(change), topic_attributes(V5))
    assert refused.value.message == remark


def test_each_version_has_its_own() -> None:
    assert changed_attributes(None, {"+message.type": "PRIORITY"}, topic_attributes(V55)) == {
        "message.type": "PRIORITY"
    }
    assert changed_attributes(None, {"+lite.topic.expiration": "43200"}, topic_attributes(V55)) == {
        "lite.topic.expiration": "43200"
    }
    with pytest.raises(RefusedError) as refused:
        changed_attributes(None, {"+message.type": "NONSENSE"}, topic_attributes(V55))
    assert refused.value.message == f"value is not in set: {_TYPES_OF_5_5}"
    with pytest.raises(RefusedError):
        changed_attributes(None, {"+message.type": "NORMAL"}, topic_attributes(V4))


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"+nosuch": "1"}, "unsupported key: nosuch"),
        ({"+priority.factor": "101"}, "value is not in range(0, 100)"),
        ({"-priority.factor": ""}, "only add attribute is supported while creating topic. key: priority.factor"),
        ({"+lite.sub.model": "shared"}, "value is not in set: [Shared, Exclusive]"),
        ({"+lite.sub.client.max.event.cnt": "9"}, "value is not in range(10, 9223372036854775807)"),
        ({"+lite.sub.reset.offset.exclusive": "yes"}, "boolean attribute format is wrong."),
    ],
)
def test_what_is_refused_of_a_group(change: dict[str, str], remark: str) -> None:
    """The words that 5.5.0 has for each."""
    with pytest.raises(RefusedError) as refused:
        changed_attributes(None, change, group_attributes(V55))
    assert refused.value.message == remark


def test_attributes_of_groups_are_changes(tmp_path: Path) -> None:
    """mqadmin updateSubGroup sends `+name`; without --attributes it sends none, and a group keeps its own."""
    writing = _Writing55(tmp_path / "store")
    code, one = Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Request.GET_SUBSCRIPTIONGROUP_CONFIG

    def put(group: str, **attributes: str) -> int:
        change = {name.replace("_", "."): value for name, value in attributes.items()}
        signed = {f"+{name}": value for name, value in change.items()}
        return writing.ask(code, {"groupName": group, "retryMaxTimes": 3, "attributes": signed}).code

    assert put("g", priority_factor="2", lite_sub_reset_offset_exclusive="TRUE", lite_bind_topic="x") == 0
    expected = {"priority.factor": "2", "lite.sub.reset.offset.exclusive": "TRUE", "lite.bind.topic": "x"}
    assert writing.content(one, group="g")["attributes"] == expected
    assert put("g") == 0
    assert writing.content(one, group="g")["attributes"] == expected
    changes = {"-lite.bind.topic": "", "+priority.factor": "7", "-lite.sub.reset.offset.exclusive": ""}
    assert writing.ask(code, {"groupName": "g", "attributes": changes}).code == 0
    assert writing.content(one, group="g")["attributes"] == {"priority.factor": "7"}
    # all of a list or none
    groups = [{"groupName": "h"}, {"groupName": "i", "attributes": {"+nosuch": "1"}}]
    answer = writing.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": groups})
    assert (answer.code, answer.remark) == (1, "unsupported key: nosuch")
    assert writing.broker.groups.find("h") is None
    writing.close()
    table = json.loads((tmp_path / "store" / "config" / "subscriptionGroup.json").read_text())
    assert table["subscriptionGroupTable"]["g"]["attributes"] == {"priority.factor": "7"}


def test_groups_of_5_3_have_no_attributes(writing: Writing) -> None:
    code = Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    answer = writing.ask(code, {"groupName": "g", "attributes": {"+priority.factor": "2"}})
    assert (answer.code, answer.remark) == (1, "unsupported key: priority.factor")
    assert writing.broker.groups.find("g") is None


def test_a_refused_topic_is_stored_nowhere(writing: Writing, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"topic": "Bad", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    answer = writing.ask(Request.UPDATE_AND_CREATE_TOPIC, attributes="+message.type=NONSENSE", **fields)
    assert (answer.code, answer.remark) == (1, f"value is not in set: {_TYPES}")
    answer = writing.ask(Request.UPDATE_AND_CREATE_TOPIC, attributes="+message.type=MIXED", **fields)
    assert (answer.code, answer.remark) == (29, "MIXED message type is not supported.")
    answer = writing.ask(Request.UPDATE_AND_CREATE_TOPIC, attributes="+queue.type=BatchCQ", **fields)
    assert answer.code == 29
    assert writing.ask(Request.GET_TOPIC_CONFIG, topic="Bad").code == 17
    assert writing.ask(Request.UPDATE_AND_CREATE_TOPIC, attributes="+message.type=FIFO", **fields).code == 0
    writing.close()
    table = json.loads((tmp_path / "store" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["Bad"]["attributes"] == {"message.type": "FIFO"}
