"""No false alarm on what rmqctl wrote, recovered, rebuilt or cleaned, nor while it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.layouts import CHECKPOINT
from rmqctl.formats.message import Message
from rmqctl.formats.properties import TRANSACTION_ROLLBACK
from rmqctl.store.check import check as check_module
from rmqctl.store.check.check import check
from rmqctl.store.check.cross import Level
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore, is_broken
from tests.processes import start
from tests.quick import goldens_of, sample
from tests.store.check.breaking import alarms, checked, codes, config_of, messages, patch, put_field
from tests.store.write.writing import SMALL

_MENDED_BY_RECOVER = sorted(
    name
    for name in GOLDENS
    if (is_broken(name) or "crash" in name)
    and not any(word in name for word in ("crc-flip", "gap", "log-gone", "short-middle", "stray", "cq-short"))
)


_REBUILT = ["clean", "v4-clean", "features", "lmq", "cqext", "innerbatch", "cq-short", "cq-lost"]


def _written(root: Path, count: int, config: StoreConfig = SMALL) -> None:
    with MessageStore.open(root, "rw", config, create=True) as store:
        for number in range(count):
            topic = f"Topic{number % 3}"
            properties = {"KEYS": f"k{number} hot", "TAGS": "a"} if number % 2 else {}
            store.put(Message(topic, b"x" * (number % 700), number % 4, properties=properties))


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("count", [0, 1, 700])
def test_written(count: int, level: Level, tmp_path: Path) -> None:
    _written(tmp_path / "store", count)
    findings, summary = checked(tmp_path / "store", level)
    assert not alarms(findings), findings
    if level is not Level.QUICK:
        assert summary.messages == count


@pytest.mark.parametrize("name", goldens_of(_MENDED_BY_RECOVER, "torn-zero", "cq-truncated"))
def test_recovered(name: str, golden_store: GoldenStore) -> None:
    """What `recover` says it mends, it does: nothing is left to find."""
    store = golden_store(name)
    with StoreFiles(store, config_of(name, store)) as files:
        recover(files)
    findings, _ = checked(store, Level.FULL, config_of(name, store))
    assert not alarms(findings), findings


@pytest.mark.parametrize("name", ["crc-flip-last", "crc-flip-third", "v4-crc-flip-last-abort"])
def test_cut(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    with StoreFiles(store) as files:
        recover(files, cut=True, full=True)
    findings, _ = checked(store)
    assert not alarms(findings), findings


@pytest.mark.parametrize("name", goldens_of(_REBUILT, "cq-lost"))
def test_rebuilt(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    with MessageStore.open(store) as opened:
        opened.rebuild()
    findings, _ = checked(store)
    assert not alarms(findings), findings


def test_cleaned(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with MessageStore.open(store) as opened:
        opened.clean(CleanOptions(at_once=True, batch_maximum=4))
    findings, summary = checked(store)
    assert summary.log_begin > 0
    assert not alarms(findings), findings


def test_appended_to_a_golden(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with MessageStore.open(store, "rw", StoreConfig(timer_wheel_enable=False)) as opened:
        for number in range(200):
            opened.put(Message("TopicTest", b"more", number % 4, properties={"KEYS": f"n{number}"}))
    findings, summary = checked(store)
    assert not alarms(findings), findings
    assert summary.messages == 2700


WRITER = """
    import sys, time
    from pathlib import Path
    from rmqctl.formats.message import Message
    from rmqctl.store.message_store import MessageStore
    from tests.store.write.writing import SMALL

    with MessageStore.open(Path(sys.argv[1]), "rw", SMALL, create=True) as store:
        number, told = 0, Path(sys.argv[2])
        while not told.exists():
            for _ in range(20):
                number += 1
                properties = {"KEYS": f"k{number}", "TAGS": "a"}
                store.put(Message(f"Topic{number % 3}", bytes([number % 251]) * (number % 3000), number % 4,
                                  properties=properties))
            if number == 20:
                print("open", flush=True)
            time.sleep(0.002)
"""


def _writer(store: Path, told: Path) -> subprocess.Popen[str]:
    """Writes until there is a file `told`."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(store), str(told)]
    process = start(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.parametrize("level", sample(Level, [Level.DEFAULT]))
def test_while_another_process_writes(level: Level, tmp_path: Path) -> None:
    """Frames half written, files just created, queues that are behind: none of it is damage."""
    store = tmp_path / "store"
    told = tmp_path / "told"
    process = _writer(store, told)
    grown: list[int] = []
    try:
        while process.poll() is None:
            findings, summary = checked(store, level)
            # at its end it has closed the store before it is gone
            assert summary.live or not (store / "abort").exists()
            assert not alarms(findings), findings
            grown.append(summary.log_end)
            if len(grown) >= 8 and grown[-1] > grown[0] + 100_000:
                told.touch()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert process.returncode == 0
    assert grown[-1] > grown[0] > 0


def test_a_writer_that_comes_while_names_and_sizes_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process has the store open when the check begins; then one opens a file, and gives it its size later."""
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", SMALL, create=True) as opened:
        opened.put(Message("T", b"x"))
    (file,) = (store / "consumequeue" / "T" / "0").iterdir()
    units, uses, pauses = file.read_bytes(), [False], list[float]()
    file.write_bytes(b"")

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            file.write_bytes(units)

    monkeypatch.setattr(check_module, "is_in_use", lambda layout: uses.pop() if uses else True)
    monkeypatch.setattr(check_module, "sleep", pause)
    findings, summary = checked(store)
    assert not alarms(findings), findings
    assert (summary.live, len(pauses)) == (True, 3)
    # an old file that is empty is not waited for
    file.write_bytes(b"")
    os.utime(file, (time.time() - 600,) * 2)
    pauses.clear()
    findings, _ = checked(store)
    assert "RMQ-FILE-014" in codes(findings)
    assert len(pauses) == 2


def test_while_this_process_writes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", SMALL, create=True) as store:
        for round_ in range(10):
            for number in range(50):
                store.put(Message("T", b"x" * (number * 10), number % 4, properties={"KEYS": f"{round_}-{number}"}))
            findings, summary = checked(tmp_path / "store")
            assert not alarms(findings), findings
            assert summary.live
            assert "RMQ-STATE-001" not in codes(findings)


def test_a_killed_writer_leaves_notices_or_what_recover_mends(tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = _writer(store, tmp_path / "never")
    time.sleep(1)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    findings, summary = checked(store)
    assert not summary.live
    assert "RMQ-STATE-001" in codes(findings)
    # queues and index may be anywhere in what they were doing; of the log only its very end
    others = {code for code in alarms(findings) if not code.startswith(("RMQ-IDX", "RMQ-CQ"))}
    assert others <= {"RMQ-LOG-011", "RMQ-LOG-012", "RMQ-FILE-003"}
    assert all(finding.code == "RMQ-LOG-011" for finding in findings if finding.data_lost)
    with StoreFiles(store) as files:
        recover(files)
    assert not alarms(checked(store)[0])


def test_a_file_that_expires_while_it_is_checked(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file goes away behind the listing: the check begins anew and tells nothing twice."""
    store = golden_store("clean")
    from rmqctl.store.check import check as pass_over
    from rmqctl.store.log import survey as tail

    removed: list[Path] = []
    original: Callable[..., object] = tail.look_at_tail

    def and_expire(*arguments: object) -> object:
        if not removed:
            removed.append(sorted((store / "commitlog").iterdir())[0])
            removed[0].unlink()
        return original(*arguments)

    monkeypatch.setattr(pass_over, "look_at_tail", and_expire)
    with StoreFiles(store) as files:
        run = check(files)
        findings = list(run)
    assert not alarms(findings), findings
    assert run.summary.log_begin == 262144
    assert len(findings) == len(set(findings))


@pytest.mark.parametrize("messages_without_slot", [1, 3])
def test_a_log_that_ends_with_messages_of_no_queue(messages_without_slot: int, golden_store: GoldenStore) -> None:
    """Rolled back ones take no slot: the checkpoint is not ahead of the queues because of them."""
    store = golden_store("clean")
    for message in messages(store)[-messages_without_slot:]:
        put_field(store, message.physical_offset, "sys_flag", message.sys_flag | TRANSACTION_ROLLBACK)
    with StoreFiles(store) as files:
        recover(files)
    assert not alarms(checked(store)[0]), checked(store)[0]


def test_a_log_that_ends_with_topics_that_are_no_names(golden_store: GoldenStore) -> None:
    store = golden_store("longtopic-toolong")
    with StoreFiles(store) as files:
        recover(files)
    assert codes(checked(store)[0]) == {"RMQ-LOG-019"}


def test_a_checkpoint_ahead_of_whole_queues(golden_store: GoldenStore) -> None:
    """`recover` would find nothing to do: the mend is that of the checkpoint alone."""
    store = golden_store("clean")
    path = store / "checkpoint"
    fields = list(CHECKPOINT.unpack_from(path.read_bytes(), 0))
    fields[1] += 5000
    patch(path, 0, CHECKPOINT.struct.pack(*fields))
    findings, _ = checked(store)
    assert [(one.code, one.fix) for one in findings] == [("RMQ-CKPT-003", "rmqctl repair --only RMQ-CKPT-003")]
