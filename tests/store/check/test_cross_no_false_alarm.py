"""No cross check raises an alarm on what is whole: stores being written, shares of a log, what our commands left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.layouts import INDEX_HEADER
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.check import queue_look as look
from rmqctl.store.check.catalogue import Finding, Severity
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import CrossCheck, Level, LogSeen, Subset
from rmqctl.store.check.index import IndexCheck
from rmqctl.store.check.queue_findings import QueueCheck
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.implied import Digest, Run, Units, read_units
from rmqctl.store.log.survey import new_survey, survey_runs
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, is_broken
from tests.quick import goldens_of
from tests.store.check.breaking import checked, config_of, messages
from tests.store.check.units import (
    EMPTY,
    UNITS_PER_FILE,
    Unit,
    index_files,
    of_code,
    put_message_unit,
    put_unit,
    undispatched,
    unit,
)
from tests.store.clean.cleaning import age_all, run
from tests.store.write.writing import SMALL, lines_of, run_python

_WHOLE = [name for name in GOLDENS if not is_broken(name) and name not in ("crash", "v4-crash")]
_MENDED = ["crash", "v4-crash", "cq-truncated", "checkpoint-future", "index-garbage", "index-lost", "torn-zero-clean"]

_WRITER = """
import sys, time
from pathlib import Path
from rmqctl.formats.message import Message
from rmqctl.store.log.implied import Digest, Run
from rmqctl.store.log.survey import new_survey
from rmqctl.store.message_store import MessageStore
from tests.store.write.writing import SMALL

with MessageStore.open(Path(sys.argv[1]), "rw", SMALL, create=True) as store:
    number, told = 0, Path(sys.argv[2])
    while number < 2000 or not told.exists():
        many = [
            Message(f"T{n % 5}", b"x" * (n % 300), n % 3, properties={"KEYS": f"k{n} hot", "UNIQ_KEY": f"u{n}"})
            for n in range(number, number + 40)
        ]
        number += len(many)
        if number % 3:
            store.put_many(many)
        else:
            for one in many:
                store.put(one)
        if number == 400:
            print("begun", flush=True)
        time.sleep(0.001)
print("done", flush=True)
"""


def _of_cross(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.code.split("-")[1] in ("CQ", "IDX")]


def _alarms(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in _of_cross(findings) if finding.severity is not Severity.NOTICE]


def test_store_that_is_being_written(tmp_path: Path) -> None:
    """Queues and index are behind the log by what is not dispatched yet, and files come while they are looked at."""
    store = tmp_path / "store"
    told = tmp_path / "told"
    writer = run_python(_WRITER, store, told)
    lines = lines_of(writer)
    try:
        assert next(lines) == "begun"
        checks = 0
        while writer.poll() is None:
            findings, summary = checked(store)
            # at its end it has closed the store before it is gone
            assert summary.live or not (store / "abort").exists()
            assert not _alarms(findings), findings
            checks += 1
            if checks == 8:
                told.touch()
        assert checks >= 8
        assert writer.returncode == 0
    finally:
        writer.kill()
        writer.communicate()
    findings, summary = checked(store)
    assert not _of_cross(findings)
    assert summary.messages > 1000


@pytest.mark.parametrize("name", goldens_of(_WHOLE))
def test_shares_of_whole_stores(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    with StoreFiles(store, config_of(name, store)) as files:
        for number in (1, 2, 3):
            assert not _alarms(list(check(files, subset=Subset(number, 3))))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("cq-truncated", "RMQ-CQ-001"),
        ("gap", "RMQ-CQ-009"),
        ("crash", "RMQ-CQ-002"),
        ("index-lost-abort", "RMQ-IDX-003"),
    ],
)
def test_shares_of_broken_stores(name: str, code: str, golden_store: GoldenStore) -> None:
    """What a whole check finds, the shares find together, each message once."""
    whole, _ = checked(golden_store(name))
    found: list[Finding] = []
    with StoreFiles(golden_store(name)) as files:
        for number in (1, 2, 3):
            found += _alarms(list(check(files, subset=Subset(number, 3))))
    assert {finding.code for finding in found} == {finding.code for finding in _alarms(whole)}
    wanted = sum(finding.messages or 0 for finding in whole if finding.code == code)
    if code != "RMQ-CQ-002":
        assert sum(finding.messages or 0 for finding in found if finding.code == code) in (wanted, wanted + 1)


@pytest.mark.parametrize("name", _MENDED)
def test_recovered_and_rebuilt_stores(name: str, golden_store: GoldenStore) -> None:
    recovered, rebuilt = golden_store(name), golden_store(name)
    with StoreFiles(recovered) as files:
        recover(files)
    assert not _of_cross(checked(recovered)[0])
    with StoreFiles(rebuilt) as files:
        rebuild(files)
    assert not _of_cross(checked(rebuilt)[0])
    assert not _of_cross(checked(rebuilt, Level.QUICK)[0])


def test_cleaned_store(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    age_all(store)
    assert run(store).bytes_freed
    findings, summary = checked(store)
    assert summary.log_begin > 0
    assert not _of_cross(findings)


def test_store_of_ours(tmp_path: Path) -> None:
    """All ways to write: one by one, in bulk, with small index files that fill, and a queue that began late."""
    store = tmp_path / "store"
    config = SMALL._replace(max_hash_slot_num=10, max_index_num=50)
    with MessageStore.open(store, "rw", config, create=True) as opened:
        for number in range(150):
            opened.put(Message("T", b"x" * 100, number % 2, properties={"KEYS": f"a b{number}", "TAGS": "t"}))
        opened.put_many([Message("U", b"y" * 900, 0, properties={"UNIQ_KEY": f"u{n}"}) for n in range(200)])
    for chosen in (config, StoreConfig()):
        findings, summary = checked(store, config=chosen)
        assert not _of_cross(findings)
        assert summary.messages == 350


def test_quick_looks_at_the_ends(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    undispatched(store, 0)
    (store / "consumequeue" / "TopicTest" / "0" / f"{UNITS_PER_FILE * 20:020d}").write_bytes(bytes(2000))
    assert "RMQ-CQ-019" in {finding.code for finding in checked(store, Level.QUICK)[0]}


@pytest.mark.parametrize("lost", ["topic-with-dash/0", f"TopicTest/0/{0:020d}"])
def test_quick_sees_lost_queues(golden_store: GoldenStore, lost: str) -> None:
    store = golden_store("clean")
    path = store / "consumequeue" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    (found,) = (one for one in checked(store, Level.QUICK)[0] if one.code == "RMQ-CQ-001")
    assert (found.topic, found.queue_id, found.fix) == (lost.split("/", maxsplit=1)[0], 0, "rmqctl recover")


def _of_live(store: Path, come: Callable[[], object]) -> list[Finding]:
    """Findings of the cross checks where somebody is writing; `come` is called between comparison and judgement."""
    with StoreFiles(store) as files:
        checks: list[CrossCheck] = [QueueCheck(files), IndexCheck(files, is_live=True)]
        seen = LogSeen(is_live=True, ranges=[(0, 9 * 262144)])

        def on_run(one: Run) -> None:
            seen.log_end = one.end
            for each in checks:
                each.add(one)

        survey_runs(new_survey(files.log, 0), files.log, Digest(files.config.delay_levels()), on_run)
        come()
        return [finding for each in checks for finding in each.finish(seen)]


def test_what_is_not_dispatched_yet(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    late = messages(store)[-40:]
    units = [(one, unit(store, one.topic, one.queue_id, one.queue_offset)) for one in late]
    undispatched(store, late[0].physical_offset)
    index_files(store)[-1].unlink()
    found = of_code(_of_live(store, lambda: None), "RMQ-CQ-003")
    assert (found.messages, found.physical_offset) == (40, late[0].physical_offset)
    assert {one.code for one in _of_live(store, lambda: None)} == {"RMQ-CQ-003", "RMQ-IDX-019"}

    def half() -> None:
        for one, whole in units[:25]:
            put_message_unit(store, one, whole)

    found = of_code(_of_live(store, half), "RMQ-CQ-003")
    assert found.messages == 15
    assert late[0].physical_offset < (found.physical_offset or 0) <= late[25].physical_offset
    assert {one.code for one in _of_live(store, lambda: _all_come(store, units))} == {"RMQ-IDX-019"}


def _all_come(store: Path, units: list[tuple[StoredMessage, Unit]]) -> None:
    for one, whole in units:
        put_message_unit(store, one, whole)


def test_missing_stays_missing_in_a_live_store(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    put_unit(store, "TopicTest", 0, 3, EMPTY)
    assert of_code(_of_live(store, lambda: None), "RMQ-CQ-001").messages == 1


def test_a_queue_that_comes_while_others_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message is not missing, though that of a queue compared later was there."""
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", SMALL, create=True) as opened:
        opened.put(Message("New", b"x"))
        opened.put(Message("Old", b"x"))
    (store / "consumequeue" / "New").rename(tmp_path / "New")
    whole = unit(store, "Old", 0, 0)
    put_unit(store, "Old", 0, 0, EMPTY)

    def slowly(queue: ConsumeQueue, begin: int, count: int) -> Units:
        if queue.topic == "Old":
            (tmp_path / "New").rename(store / "consumequeue" / "New")
            put_unit(store, "Old", 0, 0, whole)
        return read_units(queue, begin, count)

    monkeypatch.setattr("rmqctl.store.compare.queues.read_units", slowly)
    assert not _of_cross(_of_live(store, lambda: None))


@pytest.mark.parametrize(("pauses", "codes"), [(2, set()), (99, {"RMQ-IDX-013"})])
def test_an_index_header_that_is_half_written(
    pauses: int, codes: set[str], golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker counts an entry before it says where that leads, and may be held up between the two."""
    store = golden_store("clean")
    for path in index_files(store)[1:]:
        path.unlink()
    [path] = index_files(store)
    whole = path.read_bytes()
    end_offset = INDEX_HEADER.offset("end_physical_offset")
    path.write_bytes(whole[:end_offset] + bytes(8) + whole[end_offset + 8 :])
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == pauses:
            path.write_bytes(whole)

    # of this module alone: threads of other tests sleep, too
    monkeypatch.setattr("rmqctl.store.check.index.sleep", pause)
    found = {one.code for one in _of_live(store, lambda: None)}
    assert found & {"RMQ-IDX-013"} == codes


def test_the_quick_look_at_many_queues(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reads, one unit a queue, is not bounded as what looks wrong is."""
    monkeypatch.setattr(look, "_READ_OF_A_QUEUE", 2)
    monkeypatch.setattr(look, "_READ_AT_MOST", 3)
    found, _ = checked(golden_store("clean"), Level.QUICK)
    assert "RMQ-CQ-005" not in {one.code for one in found}


def test_what_sticks_out_of_a_file_is_walked_once(golden_store: GoldenStore) -> None:
    """The file is too long; the message at the start of the next one is not there twice."""
    store = golden_store("clean")
    path = sorted((store / "commitlog").iterdir())[4]
    path.write_bytes(path.read_bytes() + b"\xee" * 10)
    findings, summary = checked(store)
    assert [(one.code, one.fix) for one in findings if one.severity.is_alarm] == [("RMQ-FILE-002", "rmqctl recover")]
    assert summary.messages == 2500
