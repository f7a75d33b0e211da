"""Cleaning through the store's own API: while readers hold files, and while the store is open for writing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from rmqctl.formats.errors import RemovedError
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from tests.store.write.writing import FILE_SIZE, SMALL, message, small

ALL = CleanOptions(at_once=True, batch_maximum=100)
FORCED = CleanOptions(at_once=True, batch_maximum=100, forced_after=0)
ALL_DAY = ";".join(map(str, range(24)))


def filled(root: Path, count: int = 500) -> None:
    with MessageStore.open(root, "rw", SMALL, create=True) as store:
        store.put_many([message(500, queue_id=number % 2) for number in range(count)])


def log_starts(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def check_alarms(root: Path) -> list[str]:
    with MessageStore.open(root, "r", SMALL) as store:
        return [finding.code for finding in store.check() if finding.severity.is_alarm]


def test_a_file_that_a_reader_holds_is_refused_by_every_cleaning_until_it_is_released(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    before = log_starts(root)
    with MessageStore.open(root, "r", SMALL) as store:
        records = walk(store.files.log)
        next(records)
        for _ in range(2):
            report = store.clean(ALL)
            assert [decision.because for decision in report.decisions[:2]] == ["held", "behind_a_kept_file"]
            assert log_starts(root) == before
        # a walk that is given up lets go of its file
        del records
        assert len(store.clean(ALL).removed) > len(before) - 2
        assert log_starts(root) == before[-1:]
        assert store.get("TopicA", 0, 0).status.name == "OFFSET_TOO_SMALL"


def test_a_reader_whose_file_is_forced_out_gets_a_clear_error(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    has_read, may_go_on = threading.Event(), threading.Event()
    outcome: list[object] = []
    with MessageStore.open(root, "r", SMALL) as store:
        first = store.files.log.files[0]

        def read_twice() -> None:
            with first.hold() as held:
                outcome.append(held and first.read(0, 100))
                has_read.set()
                may_go_on.wait(60)
                try:
                    outcome.append(first.read(100, 100))
                except RemovedError as error:
                    outcome.append(error)

        begun = walk(store.files.log)
        record = next(begun)
        thread = threading.Thread(target=read_twice)
        thread.start()
        has_read.wait(60)
        store.clean(ALL)
        assert first.path.exists(), "the first cleaning only asks"
        store.clean(FORCED)
        assert not first.path.exists()
        may_go_on.set()
        thread.join(60)
        whole = [one.physical_offset for one in begun]
    data, error = outcome
    assert isinstance(data, bytes)
    assert len(data) == 100
    assert isinstance(error, RemovedError)
    assert str(first.path) in str(error)
    assert record.physical_offset == 0
    assert next(offset for offset in whole if offset >= FILE_SIZE) == log_starts(root)[0], "whoever read ahead goes on"


def test_a_store_that_is_open_for_writing_is_cleaned_and_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    with MessageStore.open(root, "rw", SMALL) as store:
        store.put_many([message(500, queue_id=number % 2) for number in range(100)])
        plan = store.clean(ALL, change=ChangeOptions(dry_run=True))
        assert not [note for note in plan.notes if "abort" in note]
        report = store.clean(ALL)
        assert [one.path for one in report.removed] == [one.path for one in plan.removed]
        assert log_starts(root)[0] == report.min_offset > 4 * FILE_SIZE
        later = store.put_many([message(500, queue_id=number % 2) for number in range(300)])
        store.flush()
        assert {one.status.name for one in later} == {"PUT_OK"}
        found = store.get("TopicA", 1, later[-1].queue_offset or 0)
        assert found.messages[0].physical_offset == later[-1].physical_offset
    assert check_alarms(root) == []


def test_what_is_not_dispatched_yet_stays(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    with MessageStore.open(root, "rw", SMALL) as store:
        from rmqctl.store.write.dispatch import CleanService

        service = CleanService(store.files, lambda: 0, lambda: FILE_SIZE, lambda: None, lambda _: None)
        report = service.clean(ALL, dry_run=False)
    commitlog = [one for one in report.decisions if one.kind == "commitlog"]
    assert [one.because for one in commitlog[:3]] == ["at_once", "still_used", "behind_a_kept_file"]
    assert log_starts(root)[0] == FILE_SIZE


def test_expired_files_go_by_themselves_where_that_was_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root)
    for path in (root / "commitlog").iterdir():
        os.utime(path, (1_000_000, 1_000_000))
    config = small(delete_when=ALL_DAY, clean_resource_interval=20, delete_commit_log_files_interval=0)
    before = log_starts(root)
    with MessageStore.open(root, "rw", config):
        time.sleep(0.2)
        assert log_starts(root) == before, "a library deletes nothing by itself"
    with MessageStore.open(root, "rw", config, clean_expired=True) as store:
        limit = time.monotonic() + 60
        while log_starts(root)[0] != before[-1] and time.monotonic() < limit:
            store.put(message(500))
            time.sleep(0.01)
        assert log_starts(root)[0] == before[-1]
    assert check_alarms(root) == []
