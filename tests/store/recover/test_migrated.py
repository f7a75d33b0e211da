"""A store that was switched to DLedger: commitlog files before the entries, which no start of RocketMQ recovers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store import MessageStore
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.predict.predicting import predict
from rmqctl.store.recover.recover import recover
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles
from tests.proof.crash.state import files_of
from tests.store.journal import verbs
from tests.store.journal.commands import CONFIG, FILE_SIZE
from tests.store.small_dledger import into_dledger, small_index
from tests.store.write.writing import stored_messages


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """Two commitlog files of 20 messages each, and 16 in entries."""
    root = tmp_path / "disk" / "s"
    with small_index():
        verbs.whole(root)
        into_dledger(root, CONFIG, plain_files=2)
        yield root


def _file(store: Path, number: int) -> Path:
    return store / "commitlog" / f"{number * FILE_SIZE:020d}"


def _damaged(store: Path) -> None:
    at = stored_messages(store, CONFIG)[5].physical_offset
    with _file(store, 0).open("r+b") as file:
        file.seek(at + 100)
        file.write(b"\xff" * 40)


def _gone(store: Path) -> None:
    _file(store, 1).unlink()


def _short(store: Path) -> None:
    os.truncate(_file(store, 1), 5000)


def _long(store: Path) -> None:
    with _file(store, 1).open("ab") as file:
        file.write(b"x" * 100)


def _empty(store: Path) -> None:
    os.truncate(_file(store, 0), 0)


def recovered(store: Path) -> RecoverReport:
    with StoreFiles(store, CONFIG) as files:
        return recover(files)


def fixes(store: Path) -> dict[str, str | None]:
    with MessageStore.open(store, "r", CONFIG) as opened:
        return {one.code: one.fix for one in opened.check("full") if one.severity.is_alarm}


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize(
    ("damage", "loads", "spans"),
    [(_damaged, True, 1), (_gone, True, 1), (_short, False, 2), (_long, False, 0), (_empty, False, 0)],
)
def test_damage_stays_and_lengths_are_put_right(
    store: Path, damage: Callable[[Path], None], loads: bool, spans: int, crashed: bool
) -> None:
    """As far as the start of a broker goes: it reads nothing there, and wants the length of each file."""
    if crashed:
        (store / "abort").write_text("1")
    damage(store)
    before, messages = files_of(store), {one.physical_offset for one in stored_messages(store, CONFIG)}
    for broker in ("5.5.0", "4.9.8"):
        with StoreFiles(store, CONFIG) as files:
            found = predict(files, broker)
        assert (found.loads, found.messages_lost, found.messages_unqueued) == (loads, 0, 0)
        said = any("does not notice 1 damaged place" in one for one in found.warnings)
        assert said == (damage is _damaged)
    if not loads:
        assert set(fixes(store).values()) >= {"rmqctl recover"}
    report = recovered(store)
    assert (len(report.damaged), report.messages_cut, report.units_removed) == (spans, 0, 0)
    assert {one.physical_offset for one in stored_messages(store, CONFIG)} == messages
    with StoreFiles(store, CONFIG) as files:
        assert predict(files, "5.5.0").loads
    assert recovered(store).operations == []
    if report.journal is not None:
        undo(CONFIG.layout(store))
    assert files_of(store) == before


def test_a_member_without_entries_keeps_its_file(store: Path) -> None:
    shutil.rmtree(store / "dledger-n0" / "index")
    for path in sorted((store / "dledger-n0" / "data").iterdir()):
        path.write_bytes(bytes(FILE_SIZE))
    (store / "dledger-n0" / "checkpoint").write_text("endIndex=-1\ncommittedIndex=-1\n")
    with StoreFiles(store, CONFIG) as files:
        report = recover(files, ChangeOptions(below_confirm=True))
    assert (report.messages, report.end_offset, report.units_removed) == (40, 2 * FILE_SIZE, 16)
    assert [path.name for path in (store / "dledger-n0" / "data").iterdir()] == [f"{2 * FILE_SIZE:020d}"]
    assert recovered(store).operations == []


def test_a_preallocated_file_does_not_make_the_entries_a_leftover(store: Path) -> None:
    """It is in the way, and named; the one of the DLedger log is not."""
    _file(store, 2).write_bytes(bytes(FILE_SIZE))
    before = files_of(store)
    with pytest.raises(RefusedError, match=f"commitlog/{2 * FILE_SIZE:020d}: does not belong into the commitlog"):
        recovered(store)
    assert files_of(store) == before
    with StoreFiles(store, CONFIG) as files:
        found = predict(files, "5.5.0")
    assert (found.loads, found.messages_lost, found.messages_unqueued) == (True, 0, 0)


def test_a_log_that_goes_on_in_commitlog_makes_them_one(store: Path) -> None:
    _file(store, 2).write_bytes(_file(store, 1).read_bytes())
    with StoreFiles(store, CONFIG) as files:
        assert files.dledger is None
