"""Repair of every broken golden: what `check` complains about is mended in one change, and undone to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.store.check.catalogue import Finding, catalogue
from rmqctl.store.check.check import check
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.files import io, lock
from rmqctl.store.journal.log import changes
from rmqctl.store.journal.plan import Plan
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.recover.recover import recover
from rmqctl.store.repair.repair import Mend, RepairReport, mend_checksum, mend_of, repair
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.quick import goldens_of
from tests.store.files.crashing import CrashError

BROKEN = [name for name in goldens.GOLDENS if goldens.is_broken(name) or goldens.is_crashed(name)]
# the log is gone: a person has to bring it back
LEFT = {"log-gone": {"RMQ-FILE-010"}, "log-gone-abort": {"RMQ-FILE-010"}, "v4-log-gone": {"RMQ-FILE-010"}}


def files_of(store: Path, name: str) -> StoreFiles:
    return StoreFiles(store, read_broker_conf(broker_conf(name, store.parent)))


def run(store: Path, name: str, *only: str, dry_run: bool = False) -> RepairReport:
    with files_of(store, name) as files:
        return repair(files, only=only, change=ChangeOptions(dry_run=dry_run))


def alarms(store: Path, name: str) -> set[str]:
    with files_of(store, name) as files:
        return {finding.code for finding in check(files) if finding.severity.is_alarm}


@pytest.mark.parametrize("name", goldens_of(BROKEN))
def test_broken_goldens(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    before = tree_state(store)
    planned = run(store, name, dry_run=True)
    assert tree_state(store) == before
    report = run(store, name)
    assert (planned.mended, planned.left) == (report.mended, report.left)
    left = LEFT.get(name, set())
    found = alarms(store, name)
    if name == "longtopic-toolong":  # its last message can have no queue, so the checkpoint is newer than any queue
        found.discard("RMQ-CKPT-003")
    assert found == left
    assert {row["code"] for row in report.left} == left
    if report.journal is not None:
        with files_of(store, name) as files:
            undo(files.layout)
    after = tree_state(store)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}


def test_only_one_kind(golden_store: GoldenStore) -> None:
    """Queues alone are mended; the damage in the log, which they do not need, stays."""
    store = golden_store("crc-flip-old")
    queue = store / "consumequeue" / "TopicTest" / "1"
    for path in queue.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    codes = {code for code in alarms(store, "crc-flip-old") if code.startswith("RMQ-CQ") and code != "RMQ-CQ-009"}
    assert codes
    before = tree_state(store)
    report = run(store, "crc-flip-old", *codes)
    assert set(report.mended) == codes
    assert report.bridged == []
    assert (report.queues_changed, report.truncated_bytes, report.index_files_rebuilt) == (1, 0, 0)
    changed = {path for path, state in tree_state(store).items() if before.get(path) != state}
    assert {path for path in changed if not path.startswith("consumequeue")} <= {".", "lock"}
    assert not codes & alarms(store, "crc-flip-old")


def test_what_is_left_is_not_reported_as_changed(golden_store: GoldenStore) -> None:
    """The index alone is mended: units that a queue lacks are neither planned nor counted."""
    store = golden_store("clean")
    for path in (store / "consumequeue" / "TopicTest" / "1").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    for path in (store / "index").iterdir():
        path.write_bytes(path.read_bytes()[:40] + bytes(path.stat().st_size - 40))
    codes = {code for code in alarms(store, "clean") if code.startswith("RMQ-IDX")}
    assert codes
    queues = tree_state(store / "consumequeue")
    report = run(store, "clean", *codes)
    assert set(report.mended) == codes
    assert report.index_files_rebuilt > 0
    assert (report.queues_changed, report.units_added, report.units_removed) == (0, 0, 0)
    assert all(row["path"].startswith("index") for row in report.operations)
    assert tree_state(store / "consumequeue") == queues
    assert not codes & alarms(store, "clean")


CONFIG = '{"dataVersion":{"counter":1},"offsetTable":{"TopicTest@G":{0:5,1:99999},"TBW102@G":{0:1}}}'


def config(store: Path, name: str, text: str, backup: str | None = None) -> Path:
    folder = store / "config"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    if backup is not None:
        (folder / f"{name}.bak").write_text(backup)
    return folder / name


def test_a_good_backup_takes_the_place_of_a_damaged_file(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = config(store, "topics.json", '{"topicConfigTable":{', '{"topicConfigTable":{}}')
    before = tree_state(store)
    report = run(store, "clean")
    assert report.mended == {"RMQ-CFG-001": 1}
    assert (report.truncated_bytes, report.queues_changed, report.units_added, report.units_removed) == (0, 0, 0, 0)
    assert (report.index_files_rebuilt, report.bridged, report.left) == (0, [], [])
    assert path.read_text() == '{"topicConfigTable":{}}'
    with files_of(store, "clean") as files:
        undo(files.layout)
    after = tree_state(store)
    assert {name for name in before if before[name] != after[name]} <= {".", "lock"}


def test_a_stale_end_is_cut_off(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    text = '{"topicConfigTable":{"标题":{}}}'
    path = config(store, "topics.json", text + '"old":1}}')
    assert run(store, "clean").mended == {"RMQ-CFG-003": 1}
    assert path.read_text() == text


def test_a_missing_file_comes_from_its_backup(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = config(store, "topics.json", "", '{"topicConfigTable":{"T":{}}}')
    path.unlink()
    assert run(store, "clean").mended == {"RMQ-CFG-004": 1}
    assert path.read_text() == '{"topicConfigTable":{"T":{}}}'


def test_offsets_are_set_only_when_named(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    path = config(store, "consumerOffset.json", CONFIG)
    assert "RMQ-OFF-001" in alarms(store, "clean")
    report = run(store, "clean")
    assert (report.mended, [row["code"] for row in report.left]) == ({}, ["RMQ-OFF-001"])
    assert path.read_text() == CONFIG
    assert run(store, "clean", "RMQ-OFF-001").mended == {"RMQ-OFF-001": 1}
    with files_of(store, "clean") as files:
        queue = files.queues.find("TopicTest", 1)
        assert queue is not None
        end = queue.max_offset
    text = "".join(path.read_text().split())
    assert text == CONFIG.replace("99999", str(end))
    assert alarms(store, "clean") == set()


def test_without_a_log_only_what_needs_none_is_mended(golden_store: GoldenStore) -> None:
    store = golden_store("log-gone")
    queues = tree_state(store / "consumequeue")
    path = config(store, "topics.json", '{"topicConfigTable":{', '{"topicConfigTable":{}}')
    report = run(store, "log-gone")
    assert report.mended == {"RMQ-CFG-001": 1}
    assert {row["code"] for row in report.left} == LEFT["log-gone"]
    assert path.read_text() == '{"topicConfigTable":{}}'
    assert tree_state(store / "consumequeue") == queues


def test_offsets_that_are_none_become_the_first_of_their_queue(golden_store: GoldenStore) -> None:
    """Of a queue that the store has not got, too. 0 is one, wherever the queue begins."""
    store = golden_store("first-gone")
    path = config(store, "consumerOffset.json", '{"offsetTable":{"TopicTest@G":{0:-1,1:-7,2:0},"Elsewhere@G":{0:-1}}}')
    assert run(store, "first-gone", "RMQ-OFF-007").mended["RMQ-OFF-007"] >= 1
    with files_of(store, "first-gone") as files:
        found = [files.queues.find("TopicTest", number) for number in (0, 1)]
        first, second = (queue.min_offset(files.log.min_offset) for queue in found if queue is not None)
    assert first > 0
    text = "".join(path.read_text().split())
    assert text == f'{{"offsetTable":{{"TopicTest@G":{{0:{first},1:{second},2:0}},"Elsewhere@G":{{0:0}}}}}}'


def test_a_checkpoint_that_makes_no_sense_is_written_anew(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    data = bytearray((store / "checkpoint").read_bytes())
    data[0:8] = b"\xff" * 8
    (store / "checkpoint").write_bytes(data)
    assert alarms(store, "clean") == {"RMQ-CKPT-006"}
    report = run(store, "clean", "RMQ-CKPT-006")
    assert {row["path"] for row in report.operations} == {"checkpoint"}
    assert alarms(store, "clean") == set()


def test_what_cannot_be_mended_with_the_rest_is_refused_whole(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / f"{100:020d}").write_bytes(bytes(262144))  # overlaps the first file
    (store / "commitlog" / "notes.txt").write_text("x")
    before = tree_state(store)
    with pytest.raises(RefusedError, match="does not belong into the commitlog: begins at 100"):
        run(store, "clean")
    after = tree_state(store)
    assert {path for path in after if before.get(path) != after[path]} <= {".", "lock"}
    assert not store.with_name("clean.rmqctl").exists()
    # the stray file alone can go
    assert run(store, "clean", "RMQ-FILE-001").mended == {"RMQ-FILE-001": 1}


def test_every_fix_that_names_repair_has_a_mend() -> None:
    for kind in catalogue().values():
        if kind.command is not None and kind.command.startswith("rmqctl repair"):
            assert mend_of(Finding(kind.code, "")) is not None, kind.code
    assert mend_of(Finding("RMQ-LOG-005", "")) is Mend.LOG


# ---- what a repair meets on its way


OFFSETS = '{"dataVersion":{"counter":1},"offsetTable":{"TopicTest@G":{0:-5,1:-7,2:7},"gone@G":{0:-1},"TopicTest@H":{}}}'
DELAYS = '{"dataVersion":{"counter":1},"offsetTable":{3:-2}}'


def test_offsets_that_are_none_begin_where_the_queue_does(golden_store: GoldenStore) -> None:
    """Only with their own code; what is no queue or level stays as it is."""
    store = golden_store("clean")
    consumer, delay = config(store, "consumerOffset.json", OFFSETS), config(store, "delayOffset.json", DELAYS)
    assert run(store, "clean", "RMQ-OFF-001", "RMQ-OFF-003").mended == {}
    assert (consumer.read_text(), delay.read_text()) == (OFFSETS, DELAYS)
    report = run(store, "clean", "RMQ-OFF-007")
    assert set(report.mended) == {"RMQ-OFF-007"}
    with files_of(store, "clean") as files:
        queues = [files.queues.find("TopicTest", number) for number in (0, 1)]
        begins = [queue.min_offset(files.log.min_offset) for queue in queues if queue is not None]
    assert len(begins) == 2
    text = "".join(consumer.read_text().split())
    wanted = OFFSETS.replace("0:-5", f"0:{begins[0]}").replace("1:-7", f"1:{begins[1]}").replace("0:-1", "0:0")
    assert text == wanted
    assert "".join(delay.read_text().split()) == DELAYS.replace("3:-2", "3:0")


def test_offsets_are_left_where_only_others_are_named(golden_store: GoldenStore) -> None:
    """One offset is behind its queue's end, another is none: each is mended by its own code alone."""
    store = golden_store("clean")
    both = CONFIG.replace("0:5", "0:-5")
    path = config(store, "consumerOffset.json", both)
    assert run(store, "clean", "RMQ-OFF-001").mended == {"RMQ-OFF-001": 1}
    text = "".join(path.read_text().split())
    assert "0:-5" in text
    assert "99999" not in text


@pytest.mark.parametrize(
    ("damaged", "text", "code", "end"),
    [
        ("consumerOffset.json", '{"offsetTable":{"TopicTest@G":{0:99999}}}', "RMQ-OFF-001", 90),
        # a level without a queue has no message yet
        ("delayOffset.json", '{"offsetTable":{3:99999}}', "RMQ-OFF-003", 0),
    ],
)
def test_offsets_that_are_right_are_not_written_again(
    golden_store: GoldenStore, damaged: str, text: str, code: str, end: int
) -> None:
    """The other file with offsets stays as it is."""
    store = golden_store("clean")
    for name, right in (("consumerOffset.json", '{"TopicTest@G":{0:5}}'), ("delayOffset.json", "{3:0}")):
        config(store, name, text if name == damaged else f'{{"offsetTable":{right}}}')
    report = run(store, "clean", code)
    assert report.mended == {code: 1}
    assert {row["path"] for row in report.operations} == {f"config/{damaged}"}
    assert "".join((store / "config" / damaged).read_text().split()) == text.replace("99999", str(end))


def test_an_offset_of_a_delay_level_ends_where_its_queue_does(golden_store: GoldenStore) -> None:
    """Level 14 has queue 13."""
    store = golden_store("broker-real")
    path = config(store, "delayOffset.json", '{"offsetTable":{14:99999}}')
    assert run(store, "broker-real", "RMQ-OFF-003").mended == {"RMQ-OFF-003": 1}
    with files_of(store, "broker-real") as files:
        queue = files.queues.find(SCHEDULE_TOPIC, 13)
        assert queue is not None
        assert "".join(path.read_text().split()) == f'{{"offsetTable":{{14:{queue.max_offset or None}}}}}'


def test_a_frame_that_is_none_any_more(golden_store: GoldenStore) -> None:
    """Whoever wrote to the log since it was checked: no checksum is put into what stands there now."""
    store = golden_store("clean")
    with files_of(store, "clean") as files:
        file = files.log.files[0]
        with file.path.open("r+b") as opened:
            opened.write(bytes(100))
        plan = Plan()
        finding = Finding("RMQ-LOG-021", "", physical_offset=file.start_offset)
        with pytest.raises(RefusedError, match="no message is there: size 0 is that of no message") as refused:
            mend_checksum(files, finding, plan)
    assert (refused.value.file, refused.value.physical_offset) == (str(file.path), file.start_offset)
    assert "rmqctl check" in str(refused.value.hint)
    assert not plan


@pytest.mark.parametrize("dry_run", [True, False])
def test_queues_in_a_rocksdb_are_for_the_broker(golden_store: GoldenStore, dry_run: bool) -> None:
    store = golden_store("rocksdb")
    with files_of(store, "rocksdb") as files:
        for path in (store / "index").iterdir():
            path.write_bytes(path.read_bytes()[:40] + bytes(path.stat().st_size - 40))
        log = files.log.files[0].path
    log.write_bytes(log.read_bytes()[:8] + b"\xff" * 4 + log.read_bytes()[12:])
    assert alarms(store, "rocksdb")
    before = tree_state(store)
    with pytest.raises(UnsupportedError, match="in a RocksDB"):
        run(store, "rocksdb", *alarms(store, "rocksdb") - {"RMQ-LOG-021"}, dry_run=dry_run)
    after = tree_state(store)
    assert {name for name in after if before.get(name) != after[name]} <= {".", "lock"}
    assert not store.with_name("rocksdb.rmqctl").exists()


def test_an_interrupted_change_is_over_when_nothing_is_left(golden_store: GoldenStore) -> None:
    """A change that kept nothing was killed; a repair of one kind of findings does not end it, one of all does."""
    store = golden_store("crash")

    def kill(operation: str, path: str, *_: int) -> None:
        if operation == "write" and "/consumequeue/" in path:
            raise CrashError

    with files_of(store, "crash") as files:
        shutil.rmtree(store / "consumequeue" / "TopicTest" / "0")
        io.observer = kill
        try:
            with pytest.raises(CrashError):
                recover(files, change=ChangeOptions(keep_undo=False))
        finally:
            io.observer = None
            lock._held.clear()
        layout = files.layout
    assert [change.state for change in changes(layout)] == ["interrupted"]
    [one, *_] = sorted(alarms(store, "crash"))
    run(store, "crash", one)
    assert changes(layout)[0].state == "interrupted"
    assert run(store, "crash").left == []
    assert changes(layout)[0].state == "permanent"
    assert alarms(store, "crash") == set()
