"""Troubles that people had with config files and offsets: each made from a real broker's store, with the code it gives.

Test ids begin with the number of the trouble in the project's list of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.formats.config_json import format_config_json, parse_config_json
from rmqctl.store.check.catalogue import Finding, Severity
from rmqctl.store.check.config import whole_value_size
from rmqctl.store.message_store import MessageStore
from tests.goldens import GoldenStore, tree_state
from tests.store.check.breaking import alarms, checked, codes

ERROR, WARNING, NOTICE = Severity.ERROR, Severity.WARNING, Severity.NOTICE
CONSUMER, DELAY, TOPICS = "consumerOffset.json", "delayOffset.json", "topics.json"
ORDERS = "Orders@g-orders"


class Pain(NamedTuple):
    """`make` breaks a copy of the golden broker-real."""

    name: str
    make: Callable[[Path], object]
    code: str
    severity: Severity
    is_mended: bool


def _path(store: Path, name: str) -> Path:
    return store / "config" / name


def _garbage(name: str) -> Callable[[Path], object]:
    return lambda store: _path(store, name).write_bytes(b"\0" * 500 + b'{"off')


def _both(name: str) -> Callable[[Path], object]:
    def make(store: Path) -> None:
        _path(store, name).write_bytes(b"\0" * 100)
        _path(store, name + ".bak").write_bytes(b'{"offsetTable":{')

    return make


def _stale_end(store: Path) -> None:
    path = _path(store, CONSUMER)
    path.write_bytes(path.read_bytes() + b"15,3:15\n\t\t}\n\t}\n}")


def _gone(name: str) -> Callable[[Path], object]:
    def make(store: Path) -> None:
        path = _path(store, name)
        backup = path.with_name(name + ".bak")
        if not backup.exists():
            backup.write_bytes(path.read_bytes())
        path.unlink()

    return make


def _edited(
    name: str, change: Callable[[dict[str, Any]], object], *, keep_backup: bool = False
) -> Callable[[Path], object]:
    def make(store: Path) -> None:
        path = _path(store, name)
        content = parse_config_json(path.read_text(encoding="utf-8"))
        backup = path.with_name(name + ".bak")
        if keep_backup:
            backup.write_bytes(path.read_bytes())
        else:
            backup.unlink(missing_ok=True)
        change(content)
        path.write_text(format_config_json(content), encoding="utf-8")

    return make


def _both_torn(name: str) -> Callable[[Path], object]:
    def make(store: Path) -> None:
        torn = _path(store, name).read_bytes()[:-40]
        for one in (name, name + ".bak"):
            _path(store, one).write_bytes(torn)

    return make


def _emptied(name: str) -> Callable[[Path], object]:
    def make(store: Path) -> None:
        for one in (name, name + ".bak"):
            _path(store, one).write_bytes(b"")

    return make


def _removed(name: str) -> Callable[[Path], object]:
    def make(store: Path) -> None:
        for one in (name, name + ".bak"):
            _path(store, one).unlink(missing_ok=True)

    return make


def _offset(key: str, queue_id: int, offset: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["offsetTable"].setdefault(key, {}).__setitem__(queue_id, offset)


def _delay(level: int, offset: int) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["offsetTable"].__setitem__(level, offset)


def _no_level(content: dict[str, Any]) -> None:
    del content["offsetTable"][1]


def _no_topic(content: dict[str, Any]) -> None:
    del content["topicConfigTable"]["Orders"]


def _named(topic: str, named: str | None) -> Callable[[dict[str, Any]], object]:
    """Copy the entry of Pay to `topic`, with another topicName or without one."""

    def change(content: dict[str, Any]) -> None:
        table = content["topicConfigTable"]
        table[topic] = {**table["Pay"], "topicName": named}
        if named is None:
            del table[topic]["topicName"]

    return change


PAINS = [
    Pain("26-consumer-offsets-of-a-crash", _garbage(CONSUMER), "RMQ-CFG-001", WARNING, True),
    Pain("27-delay-offsets-of-a-crash", _garbage(DELAY), "RMQ-CFG-001", WARNING, True),
    Pain("28-shorter-over-longer", _stale_end, "RMQ-CFG-003", WARNING, True),
    Pain("29-both-damaged", _both(CONSUMER), "RMQ-CFG-002", ERROR, False),
    Pain("29-both-torn", _both_torn(CONSUMER), "RMQ-CFG-002", ERROR, True),
    Pain("29-empty", _emptied(CONSUMER), "RMQ-CFG-002", ERROR, False),
    Pain("29-topics-empty", _emptied(TOPICS), "RMQ-CFG-002", ERROR, True),
    Pain("29-gone", _removed(CONSUMER), "RMQ-CFG-050", WARNING, False),
    Pain("31-gone", _removed(DELAY), "RMQ-CFG-050", WARNING, True),
    Pain("29-topics-gone", _removed(TOPICS), "RMQ-CFG-050", WARNING, True),
    Pain("29-groups-gone", _removed("subscriptionGroup.json"), "RMQ-CFG-022", NOTICE, False),
    Pain("29-removed-by-a-start", _gone(CONSUMER), "RMQ-CFG-004", WARNING, True),
    Pain(
        "29-backup-damaged",
        lambda store: _path(store, TOPICS + ".bak").write_bytes(b"{"),
        "RMQ-CFG-005",
        NOTICE,
        False,
    ),
    Pain("31-level-forgotten", _edited(DELAY, _no_level), "RMQ-OFF-008", NOTICE, False),
    Pain("32-level-stuck", _edited(DELAY, _delay(1, 100_000)), "RMQ-OFF-003", ERROR, True),
    Pain("32-level-without-queue", _edited(DELAY, _delay(18, 7)), "RMQ-OFF-003", ERROR, True),
    Pain("34-negative-offset", _edited(CONSUMER, _offset(ORDERS, 0, -1)), "RMQ-OFF-007", WARNING, True),
    Pain("34-offset-is-text", _edited(CONSUMER, _offset(ORDERS, 0, "x")), "RMQ-CFG-002", ERROR, True),
    Pain("34-offsets-of-no-group", _edited(CONSUMER, _offset("Orders", 0, 1)), "RMQ-OFF-007", WARNING, False),
    Pain("35-lag-is-negative", _edited(CONSUMER, _offset(ORDERS, 0, 16)), "RMQ-OFF-001", WARNING, True),
    Pain(
        "37-older-offsets-won", _edited(CONSUMER, _offset(ORDERS, 1, 3), keep_backup=True), "RMQ-OFF-006", NOTICE, False
    ),
    Pain("40-orphaned-offset", _edited(CONSUMER, _offset("Gone@g", 0, 9)), "RMQ-OFF-005", NOTICE, False),
    Pain("61-deleted-topic", _edited(TOPICS, _no_topic), "RMQ-CFG-006", NOTICE, True),
    Pain("xx-name-of-another", _edited(TOPICS, _named("Copy", "Pay")), "RMQ-CFG-025", WARNING, True),
    Pain("xx-no-name", _edited(TOPICS, _named("Copy", None)), "RMQ-CFG-026", ERROR, True),
    Pain("xx-another-shape", lambda store: _path(store, CONSUMER).write_text("[]"), "RMQ-CFG-007", WARNING, False),
    Pain("xx-no-table", lambda store: _path(store, CONSUMER).write_text("{}"), "RMQ-CFG-007", WARNING, False),
    Pain(
        "xx-table-is-null",
        lambda store: _path(store, CONSUMER).write_text('{"offsetTable": null}'),
        "RMQ-CFG-007",
        WARNING,
        False,
    ),
]


def _of(findings: list[Finding], code: str) -> list[Finding]:
    return [finding for finding in findings if finding.code == code]


def test_all_of_config_gone(golden_store: GoldenStore) -> None:
    """The timer's files show that a broker kept tables there; a store that a library wrote has none."""
    store = golden_store("broker-real")
    shutil.rmtree(store / "config")
    for made in (0, 1):
        with MessageStore.open(store) as opened:
            found = {one.file.name for one in opened.check("quick") if one.code == "RMQ-CFG-050" and one.file}
            assert found == {TOPICS, CONSUMER, "subscriptionGroup.json", DELAY}
            predicted = opened.predict()
        assert {row["file"] for row in predicted.config} == found
        if not made:
            (store / "config").mkdir()
    for name in ("timerwheel", "timerlog"):
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with MessageStore.open(store) as opened:
        assert not [one for one in opened.check("quick") if one.code == "RMQ-CFG-050"]


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: pain.name)
def test_pain(pain: Pain, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    pain.make(store)
    before = tree_state(store)
    findings, _ = checked(store)
    found = _of(findings, pain.code)
    assert found, codes(findings)
    assert found[0].severity is pain.severity
    assert (found[0].fix == f"rmqctl repair --only {pain.code}") is pain.is_mended
    assert alarms(findings) == ({pain.code} if pain.severity.is_alarm else set())
    assert tree_state(store) == before


def test_34_the_group_was_away_too_long(golden_store: GoldenStore) -> None:
    """The first commitlog files expired; the group still stands at the beginning."""
    store = golden_store("first-gone")
    (store / "config").mkdir()
    (store / "config" / CONSUMER).write_text('{"offsetTable":{"TopicTest@g":{0:3,1:0,2:7}}}', encoding="utf-8")
    findings, summary = checked(store)
    (found,) = _of(findings, "RMQ-OFF-002")
    assert (found.topic, found.queue_id) == ("TopicTest", None)
    assert found.messages is not None
    assert found.messages > 10
    assert not summary.alarms


def test_32_delayed_messages_expired(golden_store: GoldenStore) -> None:
    """The level stands before the first message that is left."""
    store = golden_store("features")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / DELAY).write_text('{"offsetTable":{3:0}}', encoding="utf-8")
    queue = store / "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"
    queue.rename(queue.with_name("00000000000000002000"))
    (found,) = _of(checked(store)[0], "RMQ-OFF-004")
    assert (found.queue_id, found.found, found.expected, found.severity) == (2, 0, 100, NOTICE)


def test_several_queues_of_a_group_are_one_finding(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    _edited(CONSUMER, lambda content: content["offsetTable"].update({ORDERS: dict.fromkeys(range(4), 99)}))(store)
    (found,) = _of(checked(store)[0], "RMQ-OFF-001")
    assert (found.topic, found.queue_id, found.messages) == ("Orders", None, 4 * 84)
    assert "g-orders" in found.message


def test_a_backup_alone_is_loaded(golden_store: GoldenStore) -> None:
    """Offsets come from the backup where the file itself is damaged, as a broker loads them."""
    store = golden_store("broker-real")
    _edited(CONSUMER, _offset(ORDERS, 0, 99))(store)
    path = _path(store, CONSUMER)
    path.rename(path.with_name(CONSUMER + ".bak"))
    path.write_bytes(b"\0")
    assert alarms(checked(store)[0]) == {"RMQ-CFG-001", "RMQ-OFF-001"}


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b'{"a":1}', None),
        (b'{"a":1}  \n', None),
        (b'{"a":1}}', 7),
        (b'{"a":"}{"}x', 10),
        (b'{"offsetTable":{1:2}}1:2}}', 21),
        ('{"ä":"é"}\xff'.encode(), 11),
        (b'{"a":1', None),
        (b'{"a" 1}x', None),
        (b"", None),
        (b'"x"}', None),
        (b"\xff\xfe{}", 4),
        (b"{" * 100_000, None),
        (b"[" * 100_000 + b"]" * 100_000 + b"x", None),
        (b'"' + b"\\" * 100_000, None),
    ],
    ids=range(14),
)
def test_size_of_the_first_value(data: bytes, size: int | None) -> None:
    found = whole_value_size(data)
    if data.startswith(b"\xff"):
        # bytes before the value that are no text: nothing to keep
        assert found is None
        return
    assert found == size
    if size is not None:
        assert parse_config_json(data[:size].decode("utf-8")) is not None


@pytest.mark.parametrize("content", [b"[" * 1_000_000, b'{"a":' * 200_000, b"\0" * 1_000_000, b'{"a":1e999999}'])
def test_hostile_json_is_damage(content: bytes, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    for name in (CONSUMER, DELAY, TOPICS):
        _path(store, name).write_bytes(content)
        _path(store, name + ".bak").unlink(missing_ok=True)
    findings, _ = checked(store)
    assert alarms(findings) <= {"RMQ-CFG-002", "RMQ-CFG-007", "RMQ-OFF-007"}


def test_a_fifo_does_not_hang_it(golden_store: GoldenStore) -> None:
    import os

    store = golden_store("broker-real")
    _path(store, CONSUMER).unlink()
    os.mkfifo(_path(store, CONSUMER))
    findings, _ = checked(store)
    assert _of(findings, "RMQ-FILE-007")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('// edited\n{"topicConfigTable": {}}', "RMQ-CFG-020"),
        ("{topicConfigTable: {}}", "RMQ-CFG-021"),
        ('{"topicConfigTable": {"../../evil": {"topicName": "../../evil"}}}', "RMQ-CFG-023"),
        ('{"topicConfigTable": {"bad name": {"topicName": "bad name"}}}', "RMQ-CFG-024"),
    ],
)
def test_topics_as_an_editor_leaves_them(text: str, code: str, golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    (store / "config/topics.json").write_text(text, encoding="utf-8")
    with MessageStore.open(store) as opened:
        found = {finding.code: finding for finding in opened.check("quick") if finding.code.startswith("RMQ-CFG-02")}
    assert list(found) == [code]
    assert str(found[code].file).endswith("config/topics.json")
    assert found[code].message.count("a name without quotes") == (code == "RMQ-CFG-021")


@pytest.mark.parametrize(
    ("topic", "is_known"),
    [
        ("t" * 127, True),
        ("t" * 128, False),
        ("%RETRY%" + "g" * 248, True),
        ("%DLQ%" + "g" * 250, True),
        ("%LMQ%$parent$" + "t" * 200, True),
        ("%LMQ%" + "t" * 200, True),
    ],
)
def test_names_as_long_as_a_broker_of_any_version_has_them(
    topic: str, is_known: bool, golden_store: GoldenStore
) -> None:
    store, offsets = golden_store("broker-real"), {f"{topic}@{'g' * length}": {0: 0} for length in (120, 255)}
    (store / "config" / CONSUMER).write_text(json.dumps({"offsetTable": offsets}), encoding="utf-8")
    with MessageStore.open(store) as opened:
        found = {finding.found for finding in opened.check("quick") if finding.code == "RMQ-CFG-024"}
    assert found == (set() if is_known else {topic})


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("topics.json", '{"topicConfigTable":{"T":{"topicName":"../T"}}}', {"../T"}),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":{"g":{"groupName":"../g"}}}', {"../g"}),
        (
            "subscriptionGroup.json",
            '{"forbiddenTable":{"../g":{"../T":1}},"subscriptionGroupTable":{}}',
            {"../g", "../T"},
        ),
        ("consumerFilter.json", '{"filterDataByTopic":{"../T":{"groupFilterData":{"../g":{}}}}}', {"../T", "../g"}),
        ("consumerOrderInfo.json", '{"table":{"../T@../g":{}}}', {"../T", "../g"}),
        ("messageRequestMode.json", '{"messageRequestModeMap":{"../T":{"../g":{}}}}', {"../T", "../g"}),
        ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"../T":{"hostedQueues":{}}}}', {"../T"}),
        # the group of an MQTT client is its id
        ("lmqConsumerOffset.json", '{"offsetTable":{},"lmqOffsetTable":{"%LMQ%../T@%LMQ%mosq/1":1}}', {"%LMQ%../T"}),
    ],
)
def test_names_that_lead_out_are_found_in_every_file(
    golden_store: GoldenStore, name: str, text: str, names: set[str]
) -> None:
    store = golden_store("broker-real")
    _path(store, name).write_text(text, encoding="utf-8")
    assert {one.found for one in checked(store)[0] if one.code == "RMQ-CFG-023"} == names


_SHAPED = {
    "consumerFilter.json": "filterDataByTopic",
    "consumerOrderInfo.json": "table",
    "topicQueueMapping.json": "topicQueueMappingInfoMap",
    "messageRequestMode.json": "messageRequestModeMap",
}
_MISSHAPED = [("5", name) for name in _SHAPED] + [
    *((entry, "consumerOrderInfo.json") for entry in ("null", "[]", '{"0":5}', '{"x":{}}', '{"0":{"popTime":"x"}}')),
    *((entry, "consumerFilter.json") for entry in ("null", '{"groupFilterData":5}', '{"groupFilterData":{"g":5}}')),
    *((entry, "topicQueueMapping.json") for entry in ("[]", '{"epoch":"x"}', '{"hostedQueues":5}')),
    *((entry, "messageRequestMode.json") for entry in ("true", '{"g":5}', '{"g":[]}')),
]
_SHAPELY = [
    ('{"0":{"popTime":5}}', "consumerOrderInfo.json"),
    ('{"x":5,"groupFilterData":{"g":{"bornTime":"5"}}}', "consumerFilter.json"),
    ('{"epoch":5,"a":[]}', "topicQueueMapping.json"),
    ('{"g":{"mode":"POP"}}', "messageRequestMode.json"),
]


def _one_entry(name: str, entry: str) -> str:
    return f'{{"{_SHAPED[name]}":{{"Orders@g":{entry}}}}}'


@pytest.mark.parametrize(("entry", "name"), _MISSHAPED)
def test_an_entry_that_no_broker_converts_is_named_with_its_file(
    golden_store: GoldenStore, entry: str, name: str
) -> None:
    store = golden_store("broker-real")
    path = _path(store, name)
    path.write_text(_one_entry(name, entry), encoding="utf-8")
    (found,) = [one for one in checked(store)[0] if one.code in ("RMQ-CFG-001", "RMQ-CFG-002")]
    assert (Path(str(found.file)).name, "no broker loads it" in found.message) == (name, True)


@pytest.mark.parametrize(("entry", "name"), _SHAPELY)
def test_entries_that_brokers_convert_are_no_finding(golden_store: GoldenStore, entry: str, name: str) -> None:
    store = golden_store("broker-real")
    _path(store, name).write_text(_one_entry(name, entry), encoding="utf-8")
    assert not [one for one in checked(store)[0] if one.code in ("RMQ-CFG-001", "RMQ-CFG-002")]
