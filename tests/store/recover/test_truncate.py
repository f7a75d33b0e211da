"""Truncation at an offset: only where a record begins or ends, and everything else follows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import Message
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.journal.undo import undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.consumequeue import ConsumeQueue, QueueUnit
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, Row, tree_state, truth
from tests.store.journal.commands import CONFIG, put


def run(store: Path, at: int, *, dry_run: bool = False, keeps: bool = True) -> RecoverReport:
    with StoreFiles(store) as files:
        return truncate(files, at, change=ChangeOptions(dry_run=dry_run, keep_undo=keeps))


def changes(report: RecoverReport) -> list[Row]:
    """The plan but for the index, whose new files have names only when they are made."""
    return [row for row in report.operations if not row["path"].startswith("index/")]


def assert_ends_at(store: Path, golden: str, end: int) -> None:
    """Log, queues, index and checkpoint hold the golden's messages before `end` and nothing else."""
    rows = [row for row in truth(golden).messages if row["phyOffset"] < end]
    with StoreFiles(store) as files:
        expected: dict[tuple[str, int], int] = {}
        for row in rows:
            if has_queue_slot(row["sysFlag"]):
                key = (row["topic"], row["queueId"])
                expected[key] = max(expected.get(key, 0), row["queueOffset"] + 1)
        assert {
            (queue.topic, queue.queue_id): queue.max_offset for queue in files.queues.all() if queue.max_offset
        } == expected
        assert all(file.header.end_physical_offset < end for file in files.index.files)
        checkpoint = files.checkpoint()
        assert checkpoint is not None
        assert checkpoint.physic_msg_timestamp == (rows[-1]["storeTimestamp"] if rows else 0)
        # recovery has nothing to add
        assert recover(files, change=ChangeOptions(dry_run=True)).operations == []
        assert recover(files, change=ChangeOptions(dry_run=True)).end_offset == end


@pytest.mark.parametrize("name", ["clean", "crash", "v4-clean"])
@pytest.mark.parametrize("number", [0, 1, 700, 1234, 2499])
def test_the_log_ends_where_a_message_began(golden_store: GoldenStore, name: str, number: int) -> None:
    store = golden_store(name)
    before = tree_state(store)
    rows = truth(name).messages
    at = rows[number]["phyOffset"]
    planned = run(store, at, dry_run=True)
    assert tree_state(store) == before
    report = run(store, at)
    assert (report.messages, report.messages_cut) == (number, len(rows) - number)
    assert (planned.messages_cut, changes(planned)) == (report.messages_cut, changes(report))
    last = rows[number - 1]["phyOffset"] + rows[number - 1]["storeSize"] if number else 0
    # in front of a file's first message stands the blank frame of the file before
    assert report.end_offset == at
    assert last <= at
    assert_ends_at(store, name, at)
    with StoreFiles(store) as files:
        undo(files.layout)
    after = tree_state(store)
    assert {path for path in before if before[path] != after[path]} <= {".", "lock"}


def test_a_blank_frame_can_be_cut_off(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    report = run(store, 261787)
    assert (report.end_offset, report.messages) == (
        261787,
        sum(row["phyOffset"] < 261787 for row in truth("clean").messages),
    )
    assert_ends_at(store, "clean", 261787)


@pytest.mark.parametrize(
    ("at", "message", "hint"),
    [
        (1, "begins at 0 and ends at 223", "`--at 0`"),
        (600000, "begins at 582959 and ends at 601709", "`--at 601709`"),
        (262143, "the rest of a file that begins at 261787", "`--at 262144`"),
        (2135613, "the commitlog ends at 2135612", "nothing to truncate"),
        (1 << 40, "the commitlog ends at 2135612", "nothing to truncate"),
    ],
)
def test_other_places_are_refused_and_the_nearest_named(
    golden_store: GoldenStore, at: int, message: str, hint: str
) -> None:
    store = golden_store("clean")
    before = tree_state(store.parent)
    with pytest.raises(RefusedError, match=message) as refused:
        run(store, at)
    assert hint in (refused.value.hint or "")
    assert refused.value.physical_offset == at
    assert tree_state(store.parent) == before


def test_before_the_first_file(golden_store: GoldenStore) -> None:
    with pytest.raises(RefusedError, match="begins at 524288"):
        run(golden_store("first-gone"), 5)
    store = golden_store("clean")
    report = run(store, 2135612)
    assert report.operations == []


def test_damage_before_the_place_stays_and_is_named(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-old")
    report = run(store, 601709)
    assert [(row["physical_offset"], row["end_offset"]) for row in report.damaged] == [(402516, 403278)]
    with pytest.raises(RefusedError, match="begins at 402516 and ends at 403278"):
        run(store, 402600)
    assert run(store, 402516).damaged == []


def test_a_gap_can_be_where_the_log_ends(golden_store: GoldenStore) -> None:
    store = golden_store("gap")
    with pytest.raises(RefusedError, match="begins at 1048576 and ends at 1310720"):
        run(store, 1100000)
    report = run(store, 1048576)
    assert (report.end_offset, report.damaged) == (1048576, [])
    assert_ends_at(store, "clean", 1048576)


def test_without_a_journal(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    report = run(store, 601709, keeps=False)
    assert report.journal is None
    assert_ends_at(store, "clean", 601709)
    assert [path.name for path in store.with_name("clean.rmqctl").iterdir()] == ["history.jsonl"]


@pytest.fixture
def begun_anew(tmp_path: Path) -> Path:
    """A queue that begins with placeholders: its first eight messages expired before it was made anew."""
    root = tmp_path / "store"
    with MessageStore.open(root, "rw", CONFIG, create=True) as store:
        for _ in range(24):
            assert store.put(Message("T", bytes(880), 0)).status.is_stored
    expire(root)
    with MessageStore.open(root, config=CONFIG) as store:
        store.rebuild()
    assert [unit.is_placeholder for unit in units_of(root)] == [True] * 8 + [False] * 16
    return root


def expire(root: Path) -> None:
    """The first file of the log goes."""
    first = sorted((root / "commitlog").iterdir())[0]
    os.utime(first, (0, 0))
    with MessageStore.open(root, config=CONFIG) as store:
        assert [one.kind for one in store.clean().removed] == ["commitlog"]


def units_of(root: Path) -> list[QueueUnit]:
    with MessageStore.open(root, config=CONFIG) as store:
        queue = store.files.queues.find("T", 0)
        assert isinstance(queue, ConsumeQueue)
        return list(queue.units(0))


def emptied(root: Path) -> set[str]:
    """The log ends where it begins; what a check finds then."""
    with MessageStore.open(root, config=CONFIG) as store:
        store.truncate(store.files.log.min_offset)
    with MessageStore.open(root, config=CONFIG) as store:
        assert store.recover(change=ChangeOptions(dry_run=True)).operations == []
        return {finding.code for finding in store.check("full") if finding.severity.is_alarm}


def test_a_queue_goes_on_behind_what_has_expired_whatever_precedes_that(begun_anew: Path) -> None:
    expire(begun_anew)
    before = units_of(begun_anew)
    assert emptied(begun_anew) == set()
    assert units_of(begun_anew) == before[:16]
    assert {one.queue_offset for one in put(begun_anew, "new")} == {16, 17, 18}


def test_a_queue_of_placeholders_alone_begins_anew(begun_anew: Path) -> None:
    """4.x takes one at the end for a place in the log, and dispatches nothing any more."""
    assert emptied(begun_anew) == set()
    assert units_of(begun_anew) == []
    assert {one.queue_offset for one in put(begun_anew, "new")} == {0, 1, 2}


def test_a_queue_whose_units_all_go_begins_anew(tmp_path: Path) -> None:
    """The cleaner took the queue's first file, and of the next one no unit is left: a file of zeros would count as a
    message at a broker's next start, or keep 4.x from starting."""
    root, config = tmp_path / "store", CONFIG._replace(mapped_file_size_consume_queue=160)
    with MessageStore.open(root, "rw", config, create=True) as store:
        for _ in range(24):
            assert store.put(Message("T", bytes(880), 0)).status.is_stored
    os.utime(sorted((root / "commitlog").iterdir())[0], (0, 0))
    with MessageStore.open(root, config=config) as store:
        assert {one.kind for one in store.clean().removed} == {"commitlog", "consumequeue"}
    with MessageStore.open(root, config=config) as store:
        queue = store.files.queues.find("T", 0)
        assert isinstance(queue, ConsumeQueue)
        assert (queue.first_slot, queue.max_offset) == (8, 24)
        store.truncate(store.files.log.min_offset)
    assert [path for path in (root / "consumequeue").rglob("*") if path.is_file()] == []
    with MessageStore.open(root, "rw", config) as store:
        assert store.put(Message("T", b"new", 0)).queue_offset == 0
