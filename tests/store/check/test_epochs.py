"""Findings of the epoch file: each provoked, fixed, and the fix undone byte for byte."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.check import check
from rmqctl.store.config.epoch_file import Epoch, epoch_bytes, read_epochs, readable_epochs
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.recover import recover
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state

_PAST = 10_000_000


def _found(store: Path) -> list[Finding]:
    with StoreFiles(store) as files:
        return [finding for finding in check(files) if finding.kind.family == "EPO"]


def _end(store: Path) -> int:
    with StoreFiles(store) as files:
        end = recover(files, change=ChangeOptions(dry_run=True)).end_offset
    assert end is not None
    return end


def _fixed(store: Path, code: str) -> list[Epoch] | None:
    """Return the entries after a repair that is undone again."""
    before = tree_state(store)
    with StoreFiles(store) as files:
        assert repair(files, only=[code]).operations
    assert _found(store) == []
    epochs = read_epochs(store / "epochFileCheckpoint")
    with StoreFiles(store) as files:
        undo(files.layout)
    assert tree_state(store) == before
    return epochs


def test_sound_epochs_are_no_finding(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    assert _found(store) == []
    (store / "epochFileCheckpoint").write_bytes(epoch_bytes([Epoch(1, 0), Epoch(7, _end(store))]))
    assert _found(store) == []
    # a CRC of 0 is not checked
    (store / "epochFileCheckpoint").write_text("1\n0\n1-0\n", encoding="ascii")
    assert _found(store) == []


def test_an_epoch_past_the_end(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    kept = [Epoch(1, 0), Epoch(2, 74_829)]
    (store / "epochFileCheckpoint").write_bytes(epoch_bytes([*kept, Epoch(3, _PAST), Epoch(4, _PAST + 1)]))
    (finding,) = _found(store)
    end = _end(store)
    assert (finding.code, finding.expected, finding.found) == ("RMQ-EPO-001", end, _PAST)
    assert finding.message == f"epoch 3 begins at {_PAST}, past the end {end} (and 1 more epoch)"
    assert _fixed(store, "RMQ-EPO-001") == kept


def test_where_all_epochs_are_past_the_end_the_backup_goes_too(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (store / name).write_bytes(epoch_bytes([Epoch(3, _PAST)]))
    with StoreFiles(store) as files:
        repair(files, only=["RMQ-EPO-001"])
    assert not list(store.glob("epochFileCheckpoint*"))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2\n5\n1-0\n2-74829\n", [Epoch(1, 0), Epoch(2, 74_829)]),
        ("3\n0\n1-0\n2-74829\n", [Epoch(1, 0), Epoch(2, 74_829)]),
        ("2\n0\n1-0\n2+74829\n", [Epoch(1, 0)]),
    ],
)
def test_a_damaged_file(golden_store: GoldenStore, text: str, kept: list[Epoch]) -> None:
    store = golden_store("broker-real")
    (store / "epochFileCheckpoint").write_text(text, encoding="ascii")
    assert [finding.code for finding in _found(store)] == ["RMQ-EPO-002"]
    assert _fixed(store, "RMQ-EPO-002") == kept
    # a broker takes the backup
    backup = [Epoch(1, 0), Epoch(2, 71_503)]
    (store / "epochFileCheckpoint.bak").write_bytes(epoch_bytes(backup))
    assert _fixed(store, "RMQ-EPO-002") == backup


@pytest.mark.parametrize("third", [Epoch(2, 75_000), Epoch(3, 74_829), Epoch(3, 5)])
def test_epochs_that_do_not_ascend(golden_store: GoldenStore, third: Epoch) -> None:
    store = golden_store("broker-real")
    kept = [Epoch(1, 0), Epoch(2, 74_829)]
    (store / "epochFileCheckpoint").write_bytes(epoch_bytes([*kept, third]))
    (finding,) = _found(store)
    assert finding.code == "RMQ-EPO-003"
    assert finding.message == f"epoch {third.number} at {third.start} follows epoch 2 at 74829"
    assert _fixed(store, "RMQ-EPO-003") == kept


LONG = 1 << 63


def _file(folder: Path, entries: str, crc: int, count: int = 1) -> Path:
    path = folder / "epochFileCheckpoint"
    path.write_text(f"{count}\n{crc}\n{entries}", encoding="ascii")
    return path


def test_numbers_are_long(tmp_path: Path) -> None:
    largest = LONG - 1
    path = _file(tmp_path, f"{largest}-{largest}\n", 0)
    assert read_epochs(path) == readable_epochs(path) == [Epoch(largest, largest)]
    for entry in (f"{LONG}-0", f"0-{LONG}", "-1-0", "+1-0", "1--1"):
        path = _file(tmp_path, f"{entry}\n", 0)
        with pytest.raises(CorruptError):
            read_epochs(path)
        assert readable_epochs(path) == []
    with pytest.raises(CorruptError):
        read_epochs(_file(tmp_path, "", 0, LONG))


def test_a_crc_has_31_bits(tmp_path: Path) -> None:
    """UtilAll#crc32 takes the sign away."""
    entries = next(text for text in (f"{number}-0\n" for number in range(99)) if zlib.crc32(text.encode()) >> 31)
    crc = zlib.crc32(entries.encode())
    assert read_epochs(_file(tmp_path, entries, crc & 0x7FFFFFFF)) is not None
    for wrong in (crc, crc & 0x7FFFFFFF ^ (1 << 30), 1):
        with pytest.raises(CorruptError):
            read_epochs(_file(tmp_path, entries, wrong))
