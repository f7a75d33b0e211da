"""Entries of topics.json and subscriptionGroup.json in a store at rest: created, changed, deleted, taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import NotFoundError, RefusedError, StoreInUseError, UsageError
from rmqctl.network.broker.members import system_groups
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.journal.journal import changing
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.repair.entries import EntryChange, EntryReport, change_entry, require_possible
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state

_TABLES = {"topic": ("topics.json", "topicConfigTable"), "group": ("subscriptionGroup.json", "subscriptionGroupTable")}


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    return golden_store("broker-real")


def _do(store: Path, kind: str, action: str, name: str, *, dry_run: bool = False, **settings: Any) -> EntryReport:
    files = StoreFiles(store, StoreConfig())
    try:
        attributes = settings.pop("attributes", "")
        return change_entry(files, EntryChange(kind, action, name, settings, attributes), ChangeOptions(dry_run))
    finally:
        files.close()


def _content(store: Path, kind: str, suffix: str = "") -> dict[Any, Any]:
    found = parse_config_json((store / "config" / (_TABLES[kind][0] + suffix)).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("kind", "setting", "changed"),
    [("topic", {"readQueueNums": 4, "order": True}, {"perm": 4}), ("group", {"retryMaxTimes": 3}, {"brokerId": 1})],
)
def test_create_change_delete_and_undo(
    store: Path, kind: str, setting: dict[str, Any], changed: dict[str, Any]
) -> None:
    before, state, table = _content(store, kind), tree_state(store), _TABLES[kind][1]
    assert _do(store, kind, "create", "New", dry_run=True, **setting).operations
    assert tree_state(store) == state
    _do(store, kind, "create", "New", **setting)
    after = _content(store, kind)
    assert setting.items() <= after[table].pop("New").items()
    assert after[table] == before[table]
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert _content(store, kind, ".bak") == before

    _do(store, kind, "change", "New", **changed)
    assert {**setting, **changed}.items() <= _content(store, kind)[table]["New"].items()
    _do(store, kind, "delete", "New")
    assert _content(store, kind)[table] == before[table]

    with MessageStore.open(store) as opened:
        for _ in range(3):
            opened.undo()
    assert tree_state(store) == state


def test_delete_says_what_stays(store: Path) -> None:
    report = _do(store, "topic", "delete", "Events")
    assert report.after is None
    assert any("8 queues" in note and "rmqctl purge" in note for note in report.notes)
    assert (store / "consumequeue" / "Events").is_dir()


def test_fewer_read_queues_than_hold_messages(store: Path) -> None:
    (note,) = _do(store, "topic", "change", "Events", dry_run=True, readQueueNums=6).notes
    assert note == "with 6 read queues consumers cannot get the messages of 2 queues: 6, 7"
    assert not _do(store, "topic", "change", "Events", dry_run=True, readQueueNums=9).notes


@pytest.mark.parametrize(
    ("kind", "action", "name", "settings", "error", "words"),
    [
        ("topic", "create", "TBW102", {}, RefusedError, "is conflict with system topic"),
        ("topic", "create", "a b", {}, RefusedError, "illegal characters"),
        ("group", "create", "a b", {}, RefusedError, "illegal characters"),
        ("topic", "create", "Events", {}, RefusedError, "has Events already"),
        ("topic", "change", "Absent", {}, NotFoundError, "has no Absent"),
        ("group", "delete", "Absent", {}, NotFoundError, "has no Absent"),
        *(
            ("group", "delete", name, {}, RefusedError, f"the group {name} is a broker's own: it makes it")
            for name in (*system_groups(), "CID_RMQ_SYS_ANY")
        ),
        ("topic", "create", "New", {"perm": 7}, UsageError, "perm 7"),
        ("topic", "create", "New", {"perm": True}, UsageError, "not a setting"),
        ("group", "create", "New", {"perm": 6}, UsageError, "not a setting"),
        ("topic", "create", "New", {"attributes": "+message.type=NONSENSE"}, RefusedError, "value is not in set"),
        ("topic", "create", "New", {"attributes": "-message.type"}, RefusedError, "only add attribute is supported"),
        ("topic", "change", "Events", {"attributes": "+queue.type=BatchCQ"}, RefusedError, "unchangeable attribute"),
        ("group", "create", "New", {"attributes": "+priority.factor=101"}, RefusedError, "range.0, 100."),
    ],
)
def test_refused(
    store: Path, kind: str, action: str, name: str, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    state = tree_state(store)
    with pytest.raises(error, match=words):
        _do(store, kind, action, name, **settings)
    assert tree_state(store) == state


def test_settings_of_a_system_group_can_be_changed(store: Path) -> None:
    """As RocketMQ lets operators do: only its deletion has no effect, because each start of a broker makes it again."""
    assert "TOOLS_CONSUMER" in _content(store, "group")["subscriptionGroupTable"]
    report = _do(store, "group", "change", "TOOLS_CONSUMER", consumeEnable=False)
    assert report.after is not None
    assert report.after["consumeEnable"] is False


def test_a_store_in_use_is_refused(store: Path) -> None:
    lock = StoreLock(store / "lock")
    state = tree_state(store)
    try:
        with pytest.raises(StoreInUseError):
            _do(store, "topic", "create", "New")
    finally:
        lock.release()
    assert tree_state(store) == state


def test_attributes_are_changes(store: Path) -> None:
    _do(store, "topic", "create", "New", attributes="+message.type=FIFO,+reserve.time=7")
    report = _do(store, "topic", "change", "New", attributes="-reserve.time,+message.type=DELAY")
    assert report.after is not None
    assert report.after["attributes"] == {"message.type": "DELAY"}
    assert _content(store, "topic")["topicConfigTable"]["New"] == report.after


def test_a_verb_that_log_and_undo_would_not_find_is_refused(store: Path) -> None:
    files = StoreFiles(store, StoreConfig())
    with pytest.raises(ValueError, match="topic-create"), changing(files, "topic-create", ChangeOptions()):
        pass
    files.close()


_INT = 1 << 31


@pytest.mark.parametrize(
    ("kind", "setting", "first", "last"),
    [
        ("topic", "readQueueNums", 0, 10_000),
        ("topic", "writeQueueNums", 0, 10_000),
        ("group", "retryQueueNums", 0, _INT - 1),
        ("group", "retryMaxTimes", -1, _INT - 1),
        ("group", "brokerId", 0, _INT - 1),
        ("group", "whichBrokerWhenConsumeSlowly", 0, _INT - 1),
    ],
)
def test_both_ends_of_each_number(kind: str, setting: str, first: int, last: int) -> None:
    for value in (first, last):
        require_possible(EntryChange(kind, "change", "New", {setting: value}))
    for value in (first - 1, last + 1):
        with pytest.raises(UsageError, match=setting):
            require_possible(EntryChange(kind, "change", "New", {setting: value}))


def test_permissions() -> None:
    for perm in range(-1, 10):
        if perm in (2, 4, 6):
            require_possible(EntryChange("topic", "change", "New", {"perm": perm}))
            continue
        with pytest.raises(UsageError, match="2 is write, 4 is read, 6 is both"):
            require_possible(EntryChange("topic", "change", "New", {"perm": perm}))
