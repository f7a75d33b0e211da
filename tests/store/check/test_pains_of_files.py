"""Troubles that people had with files, checkpoints and clocks: each made from a sound store, with the code it gives.

Test ids begin with the number of the trouble in the project's list of them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.layouts import CHECKPOINT
from rmqctl.store.check.catalogue import Severity
from rmqctl.store.check.cross import Level
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.check.breaking import LOG_FILE_SIZE, checked, codes, messages, patch, put_field

DAY = 86_400_000


class Pain(NamedTuple):
    """`make` breaks the golden `base`; `code` has to be found with `severity` and `fix`."""

    name: str
    base: str
    make: Callable[[Path], None]
    code: str
    severity: Severity
    fix: str | None
    level: Level = Level.DEFAULT
    config: StoreConfig = StoreConfig()


def _log(store: Path, number: int) -> Path:
    return store / "commitlog" / f"{number * LOG_FILE_SIZE:020d}"


def _cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def _empty_queue_file(store: Path) -> None:
    (store / "consumequeue/topic-with-dash/0/00000000000000008000").touch()


def _copied_queue(store: Path, name: str) -> None:
    shutil.copytree(store / "consumequeue/TopicTest/0", store / "consumequeue/TopicTest" / name)


def _stray_queue_file(store: Path) -> None:
    (store / "consumequeue/TopicTest/0/00000000000000000000.bak").write_bytes(b"x")


def _no_middle_queue_file(store: Path) -> None:
    (store / "consumequeue/topic-with-dash/0/00000000000000002000").unlink()


def _renamed(store: Path) -> None:
    _log(store, 3).rename(store / "commitlog" / f"{3 * LOG_FILE_SIZE + 100:020d}")


def _fifo(store: Path) -> None:
    os.mkfifo(store / "commitlog" / f"{9 * LOG_FILE_SIZE:020d}")


def _linked(store: Path) -> None:
    elsewhere = store.parent / "elsewhere"
    _log(store, 2).rename(elsewhere)
    _log(store, 2).symlink_to(elsewhere)


def _broken_link(store: Path) -> None:
    _log(store, 9).symlink_to(store.parent / "nowhere")


def _moved_in_parts(store: Path) -> None:
    shutil.rmtree(store / "commitlog")


def _checkpoint(**values: int) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        for name, value in values.items():
            data = value.to_bytes(8, "big", signed=True)
            patch(store / "checkpoint", CHECKPOINT.offset(name), data)

    return make


def _crashed_checkpoint(**values: int) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        (store / "abort").touch()
        _checkpoint(**values)(store)

    return make


def _ahead_of_queues(store: Path) -> None:
    """Flushed as it says, but the queues lost their last units: those of every queue behind half of the log."""
    middle = messages(store)[1200].physical_offset
    for path in (store / "consumequeue").rglob("0*"):
        if path.is_file():
            data = path.read_bytes()
            kept = [
                unit if int.from_bytes(unit[:8], "big") < middle else bytes(20)
                for unit in (data[at : at + 20] for at in range(0, len(data), 20))
            ]
            patch(path, 0, b"".join(kept))
    last = messages(store)[-1].store_timestamp
    _checkpoint(physic_msg_timestamp=last, logics_msg_timestamp=last)(store)


def _touched(days: int, number: int) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        path = _log(store, number)
        moment = path.stat().st_mtime_ns + days * DAY * 1_000_000
        os.utime(path, ns=(moment, moment))

    return make


def _clock_back(store: Path) -> None:
    for message in messages(store)[100:]:
        put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp - 5000)


def _future(store: Path) -> None:
    last = messages(store)[-1]
    put_field(store, last.physical_offset, "store_timestamp", time.time_ns() // 1_000_000 + 400 * DAY)


def _producer_ahead(store: Path) -> None:
    message = messages(store)[50]
    put_field(store, message.physical_offset, "born_timestamp", message.store_timestamp + DAY)


ERROR, WARNING, NOTICE = Severity.ERROR, Severity.WARNING, Severity.NOTICE
_REPAIR = "rmqctl repair --only "
PAINS = [
    Pain("01-empty-queue-file", "clean", _empty_queue_file, "RMQ-FILE-014", ERROR, "rmqctl recover"),
    Pain("03-file-of-0-bytes", "clean", lambda s: _log(s, 9).touch(), "RMQ-FILE-003", ERROR, "rmqctl recover"),
    Pain("03-short-last-file", "clean", lambda s: _cut(_log(s, 8), 99_999), "RMQ-FILE-002", ERROR, "rmqctl recover"),
    Pain(
        "03-short-middle-file", "clean", lambda s: _cut(_log(s, 4), 1), "RMQ-FILE-002", ERROR, "rmqctl recover --bridge"
    ),
    Pain(
        "04-editors-backup",
        "clean",
        lambda s: (s / "commitlog/notes.txt~").touch(),
        "RMQ-FILE-001",
        ERROR,
        _REPAIR + "RMQ-FILE-001",
    ),
    Pain(
        "04-folder-inside",
        "clean",
        lambda s: (s / "commitlog/backup").mkdir(),
        "RMQ-FILE-009",
        ERROR,
        _REPAIR + "RMQ-FILE-009",
    ),
    Pain("04-stray-queue-file", "clean", _stray_queue_file, "RMQ-FILE-012", ERROR, _REPAIR + "RMQ-FILE-012"),
    Pain("05-queue-file-gone", "clean", _no_middle_queue_file, "RMQ-FILE-015", ERROR, "rmqctl rebuild"),
    Pain("09-checkpoint-ahead-of-queues", "clean", _ahead_of_queues, "RMQ-CKPT-003", WARNING, "rmqctl recover"),
    Pain(
        "10-recovery-would-start-too-late",
        "crash-now",
        _crashed_checkpoint(physic_msg_timestamp=1 << 42, logics_msg_timestamp=1 << 42),
        "RMQ-CKPT-003",
        WARNING,
        _REPAIR + "RMQ-CKPT-003",
    ),
    Pain(
        "20-middle-file-gone", "clean", lambda s: _log(s, 5).unlink(), "RMQ-FILE-004", ERROR, "rmqctl recover --bridge"
    ),
    Pain("21-file-renamed", "clean", _renamed, "RMQ-FILE-005", ERROR, None),
    Pain(
        "21-other-size-configured",
        "clean",
        lambda _: None,
        "RMQ-FILE-017",
        ERROR,
        None,
        config=StoreConfig(mapped_file_size_commit_log=1 << 30, mapped_file_size_consume_queue=6_000_000),
    ),
    Pain("25-whole-log-again", "crash-now", _crashed_checkpoint(), "RMQ-CKPT-004", NOTICE, "rmqctl recover"),
    Pain("45-not-closed", "clean", lambda s: (s / "abort").touch(), "RMQ-STATE-001", NOTICE, "rmqctl recover"),
    Pain("53-files-kept-too-long", "clean", _touched(30, 2), "RMQ-TIME-001", NOTICE, _REPAIR + "RMQ-TIME-001"),
    Pain("54-files-expire-early", "clean", _touched(-30, 2), "RMQ-TIME-002", NOTICE, _REPAIR + "RMQ-TIME-002"),
    Pain("41-producer-ahead", "clean", _producer_ahead, "RMQ-TIME-005", NOTICE, None),
    Pain("68-moved-without-its-log", "clean", _moved_in_parts, "RMQ-FILE-010", ERROR, None),
    Pain("72-clock-went-back", "clean", _clock_back, "RMQ-TIME-004", NOTICE, None),
    Pain("72-stamp-in-the-future", "clean", _future, "RMQ-TIME-003", NOTICE, None),
    Pain("73-queues-in-rocksdb", "rocksdb", lambda _: None, "RMQ-STATE-003", NOTICE, None),
    Pain("xx-no-queue", "clean", lambda s: (s / "consumequeue/TopicTest/x").mkdir(), "RMQ-FILE-016", NOTICE, None),
    *(
        Pain(f"xx-queue-{name}", "clean", partial(_copied_queue, name=name), "RMQ-FILE-016", NOTICE, None)
        for name in ("007", "00", "2147483648", "9999999999", "٣")
    ),
    Pain("xx-no-topic", "clean", lambda s: (s / "consumequeue/notes").touch(), "RMQ-FILE-016", NOTICE, None),
    Pain("xx-fifo", "clean", _fifo, "RMQ-FILE-007", ERROR, _REPAIR + "RMQ-FILE-007"),
    Pain("xx-link", "clean", _linked, "RMQ-FILE-008", WARNING, None),
    Pain("xx-broken-link", "clean", _broken_link, "RMQ-FILE-006", ERROR, None),
    Pain("xx-no-checkpoint", "clean", lambda s: (s / "checkpoint").unlink(), "RMQ-CKPT-001", NOTICE, "rmqctl recover"),
    Pain(
        "xx-short-checkpoint",
        "clean",
        lambda s: _cut(s / "checkpoint", 48),
        "RMQ-CKPT-002",
        NOTICE,
        _REPAIR + "RMQ-CKPT-002",
    ),
    Pain(
        "xx-confirmed-too-far",
        "clean",
        _checkpoint(confirm_physical_offset=1 << 40),
        "RMQ-CKPT-005",
        WARNING,
        _REPAIR + "RMQ-CKPT-005",
    ),
    Pain(
        "xx-queue-offset-too-far",
        "clean",
        _checkpoint(logics_physical_offset=1 << 40),
        "RMQ-CKPT-030",
        WARNING,
        _REPAIR + "RMQ-CKPT-030",
    ),
    Pain(
        "xx-impossible-checkpoint",
        "clean",
        _checkpoint(logics_msg_timestamp=-5),
        "RMQ-CKPT-006",
        WARNING,
        _REPAIR + "RMQ-CKPT-006",
    ),
]


@pytest.mark.parametrize("pain", PAINS, ids=lambda pain: pain.name)
def test_pain(pain: Pain, golden_store: GoldenStore) -> None:
    store = golden_store(pain.base)
    pain.make(store)
    before = tree_state(store)
    findings, summary = checked(store, pain.level, pain.config)
    found = [finding for finding in findings if finding.code == pain.code]
    assert found, codes(findings)
    assert {finding.severity for finding in found} == {pain.severity}
    assert found[0].fix == pain.fix
    assert bool(summary.alarms) >= pain.severity.is_alarm
    assert tree_state(store) == before


def test_a_first_log_file_that_was_emptied_says_what_it_held(golden_store: GoldenStore) -> None:
    """The units that lead into it look like those of expired messages, and nothing else speaks of them."""
    store = golden_store("clean")
    held = [sum(message.physical_offset // LOG_FILE_SIZE == number for message in messages(store)) for number in (0, 1)]
    for number in (0, 1):
        _cut(_log(store, number), 0)
    findings, summary = checked(store)
    told = [finding for finding in findings if finding.code == "RMQ-FILE-003"]
    assert [(finding.messages, finding.data_lost) for finding in told] == [(count, True) for count in held]
    assert summary.data_lost


def test_only_the_configuration_is_wrong(golden_store: GoldenStore) -> None:
    """With sizes of another broker there is one finding for each setting, not one for each file."""
    config = StoreConfig(
        mapped_file_size_commit_log=1 << 30,
        mapped_file_size_consume_queue=6_000_000,
        max_hash_slot_num=5_000_000,
        max_index_num=20_000_000,
    )
    findings, summary = checked(golden_store("clean"), config=config)
    assert [finding.code for finding in findings] == ["RMQ-FILE-017"] * 3
    assert {(finding.expected, finding.found) for finding in findings} >= {(1 << 30, LOG_FILE_SIZE), (6_000_000, 2000)}
    assert summary.messages == 2500


@pytest.mark.parametrize("base", ["clean", "broker-real"])
def test_a_size_that_brokers_drop_is_their_default(base: str, golden_store: GoldenStore) -> None:
    """`predict` says that none starts: the files are not as long as it."""
    config = config_from_properties({"mappedFileSizeCommitLog": "256k"})
    findings, _ = checked(golden_store(base), config=config)
    [found] = [finding for finding in findings if finding.code == "RMQ-FILE-017"]
    assert (found.expected, found.found) == (1 << 30, LOG_FILE_SIZE)
    assert "(the default)" in found.message


@pytest.mark.parametrize("base", ["clean", "crash-now"])
def test_checkpoint_behind_is_normal(base: str, golden_store: GoldenStore) -> None:
    """Checkpoints lag by nature, also after a clean stop."""
    store = golden_store(base)
    _checkpoint(physic_msg_timestamp=0, logics_msg_timestamp=0, index_msg_timestamp=0)(store)
    findings, summary = checked(store)
    assert not summary.alarms, findings


@pytest.mark.parametrize("state", ["prepared", "undoing"])
def test_interrupted_change(state: str, golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of ours that neither came to its end nor was taken back."""
    from rmqctl.store.check import state as follower_files
    from rmqctl.store.journal.log import Change

    folder = "/kept/20260101T000000000Z-recover"
    change = Change("20260101T000000000Z-recover", "recover", state, 0, 1, 1, 1, [], "", folder)
    monkeypatch.setattr(follower_files, "changes", lambda _: [change, change._replace(state="applied")])
    findings, _ = checked(golden_store("clean"))
    (found,) = findings
    assert (found.code, found.severity, found.fix) == ("RMQ-STATE-002", WARNING, "rmqctl resume")
    assert found.file == Path(folder)


def test_the_journal_of_a_change_is_damaged(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    with StoreFiles(store) as files:
        journal = recover(files).journal
    assert journal is not None
    assert not checked(store)[1].alarms
    (Path(journal) / "journal.json").write_bytes(b"\0")
    findings, summary = checked(store)
    assert [(finding.code, finding.fix) for finding in findings] == [("RMQ-STATE-002", "rmqctl log")]
    assert summary.alarms == 1
