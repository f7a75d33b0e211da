"""Records of an earlier term that a slave's truncation left after the end of its log (apache/rocketmq#10666).

AutoSwitchHAClient cuts the log at the consistent point by moving positions only. What stood there keeps its magic code
and checksums, so the next recovery takes it for the log's end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import Level
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.epoch_file import EPOCH_FILE, Epoch, epoch_bytes, read_epochs
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.repair.repair import RepairReport, repair
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.check import test_old_messages
from tests.store.check.breaking import HEAD, alarms, checked, get, messages, put, put_field
from tests.store.v55 import CONFIG, store_of_5_5

_LAST_EPOCH = 238_553
_NEW_MASTER = (10 << 24) + 2
CODE = "RMQ-EPO-004"


def with_an_old_tail(folder: Path, new_messages: int = 12, host: int = _NEW_MASTER) -> tuple[Path, int]:
    """Return a slave that was cut where epoch 9 began, got `new_messages` of epoch 11 from another master, and died.

    Each message took the bytes of an old one. Also returns the end of its log.
    """
    store = store_of_5_5(folder, "v55-controller")
    old = messages(store)
    end = old[-1].end
    fresh = [one for one in old if one.physical_offset >= _LAST_EPOCH][:new_messages]
    for message in fresh:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp + 60_000)
        put(store, message.physical_offset + _host_position(message), host.to_bytes(4, "big"))
    at = fresh[-1].end
    left_behind = get(store, at, end - at)
    # queues, index and checkpoint follow the cut at once
    with StoreFiles(store, CONFIG) as files:
        truncate(files, at, change=ChangeOptions(keep_undo=False))
    put(store, at, left_behind)
    (store / EPOCH_FILE).write_bytes(epoch_bytes([Epoch(3, 0), Epoch(7, 231_829), Epoch(11, _LAST_EPOCH)]))
    (store / "abort").touch()
    return store, at


def _host_position(message: StoredMessage) -> int:
    assert len(message.born_host_ip) == 4
    return HEAD.offset("store_host_ip")


def _found(store: Path, code: str, config: StoreConfig | None = CONFIG) -> Finding:
    findings, _ = checked(store, config=config)
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def _repaired(store: Path, code: str, config: StoreConfig | None = CONFIG, *, dry_run: bool = False) -> RepairReport:
    with StoreFiles(store, config) as files:
        return repair(files, only=[code], change=ChangeOptions(dry_run=dry_run))


def test_the_epoch_file_tells_whose_messages_they_are(tmp_path: Path) -> None:
    store, end = with_an_old_tail(tmp_path)
    found = _found(store, CODE)
    assert (found.physical_offset, found.data_lost) == (end, False)
    assert (found.expected, found.found) == ("10.0.0.2:10911", "127.0.0.1:10911")
    assert "epoch 11" in found.message
    assert found.fix == f"rmqctl repair --only {CODE}"


def test_recovery_would_bring_them_back_and_does_not_after_the_repair(tmp_path: Path) -> None:
    store, end = with_an_old_tail(tmp_path)
    before = tree_state(store)
    with StoreFiles(store, CONFIG) as files:
        assert recover(files, change=ChangeOptions(dry_run=True)).end_offset > end
    planned = _repaired(store, CODE, dry_run=True)
    assert tree_state(store) == before
    assert planned.operations
    done = _repaired(store, CODE)
    assert (done.mended, done.truncated_bytes) == ({CODE: 1}, planned.truncated_bytes)
    assert not any(get(store, end, 4096))
    assert read_epochs(store / EPOCH_FILE) == [Epoch(3, 0), Epoch(7, 231_829), Epoch(11, _LAST_EPOCH)]
    (store / "abort").touch()
    with StoreFiles(store, CONFIG) as files:
        assert recover(files, change=ChangeOptions(dry_run=True)).end_offset == end
    (store / "abort").unlink()
    assert alarms(checked(store, config=CONFIG)[0]) == set()
    with StoreFiles(store, CONFIG) as files:
        undo(files.layout)
    assert tree_state(store) == before


def test_one_master_alone_is_no_finding(tmp_path: Path) -> None:
    """A clock that went back within an epoch: all its messages are of one host."""
    store = store_of_5_5(tmp_path, "v55-controller")
    for message in messages(store)[-10:]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 5_000)
    findings, _ = checked(store, config=CONFIG)
    assert CODE not in {finding.code for finding in findings}


def test_a_broker_whose_address_changed_within_an_epoch_keeps_its_messages(tmp_path: Path) -> None:
    """And whose clock went back, too: its queues lead to the messages, as those of no truncated slave do."""
    store = store_of_5_5(tmp_path, "v55-controller")
    for message in messages(store)[-10:]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 5_000)
        put(store, message.physical_offset + _host_position(message), _NEW_MASTER.to_bytes(4, "big"))
    findings, _ = checked(store, config=CONFIG)
    assert CODE not in {finding.code for finding in findings}
    before = messages(store)
    _repaired(store, CODE)
    assert messages(store) == before


def test_messages_that_followed_later_are_not_offered_to_go(tmp_path: Path) -> None:
    """The old ones came back and the log went on: a cut would take the new ones along."""
    store, end = with_an_old_tail(tmp_path)
    newest = messages(store)[-1]
    put_field(store, newest.physical_offset, "store_timestamp", newest.store_timestamp + 3_600_000)
    found = _found(store, CODE)
    assert (found.physical_offset, found.fix) == (end, None)
    report = _repaired(store, CODE)
    assert (report.operations, [row["code"] for row in report.left if row["code"] == CODE]) == ([], [CODE])


def test_old_messages_after_damage_go_by_their_code(golden_store: GoldenStore) -> None:
    """Earlier damage stays: `recover --full --cut` would have ended the log there."""
    store = golden_store("clean")
    end, good = test_old_messages.with_old_messages_behind(store)
    damaged = messages(store)[100]
    put_field(store, damaged.physical_offset, "magic_code", 1)
    before = tree_state(store)
    found = _found(store, "RMQ-LOG-013", None)
    assert (found.expected, found.fix) == (end, "rmqctl repair --only RMQ-LOG-013")
    _repaired(store, "RMQ-LOG-013", None)
    _, summary = checked(store)
    assert (summary.log_end, summary.messages) == (end, good - 1)
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before


@pytest.mark.parametrize("is_last", [True, False])
def test_old_messages_that_came_back_go_where_nothing_newer_follows(golden_store: GoldenStore, is_last: bool) -> None:
    store = golden_store("clean")
    all_messages = messages(store)
    for message in all_messages[2000:] if is_last else all_messages[2000:2400]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 1_500_000)
        put_field(store, message.physical_offset, "queue_offset", max(0, message.queue_offset - 1))
    found = _found(store, "RMQ-LOG-015", None)
    assert found.fix == ("rmqctl repair --only RMQ-LOG-015" if is_last else None)
    if is_last:
        _repaired(store, "RMQ-LOG-015", None)
        _, summary = checked(store, Level.DEFAULT)
        assert summary.log_end == all_messages[2000].physical_offset
