"""The checkpoint file of goldens, and files that are none."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.formats.message import Message
from rmqctl.store.log.survey import start_after_crash
from rmqctl.store.message_store import MessageStore
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import Checkpoint, StoreFiles, checkpoint_bytes, read_checkpoint, write_checkpoint
from tests.goldens import GOLDENS, GoldenStore, base_of, truth
from tests.opened import store_path
from tests.quick import goldens_of
from tests.store.v55 import CONFIG, become_of_5_5, store_of_5_5

NAMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_goldens(name: str) -> None:
    checkpoint = read_checkpoint(store_path(name) / "checkpoint")
    if "checkpoint-lost" in name:
        assert checkpoint is None
        return
    assert checkpoint is not None
    # the same longs by a plain read
    data = (store_path(name) / "checkpoint").read_bytes()
    assert len(data) == 4096
    assert tuple(checkpoint) == struct.unpack(">6q", data[:48])
    assert checkpoint.logics_physical_offset == 0
    times = [row["storeTimestamp"] for source in (name, base_of(name) or name) for row in truth(source).messages]
    for value in (getattr(checkpoint, field) for field in NAMES):
        # a checkpoint lags; only in one golden it was put into the future
        assert value == 0 or name == "checkpoint-future" or not times or value <= max(times)
    assert checkpoint_bytes(checkpoint) == data


def test_future() -> None:
    checkpoint = read_checkpoint(store_path("checkpoint-future") / "checkpoint")
    assert checkpoint is not None
    assert checkpoint[:3] == (1795304174156,) * 3


@pytest.mark.parametrize(
    ("physic", "logics", "expected"),
    [(0, 0, 0), (5000, 9000, 2000), (9000, 5000, 2000), (2999, 9000, 0), (-5, 9000, 0)],
)
def test_minimum_has_a_margin(physic: int, logics: int, expected: int) -> None:
    """StoreCheckpoint#getMinTimestamp; the index time has no part in it."""
    assert Checkpoint(physic, logics, 1).min_timestamp == expected


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint(path, Checkpoint(1, 2, 3, 4, 5, 6))
    assert path.read_bytes() == struct.pack(">6q", 1, 2, 3, 4, 5, 6) + bytes(4048)
    write_checkpoint(path, Checkpoint(6, 7, 8, 9, 10))
    assert read_checkpoint(path) == Checkpoint(6, 7, 8, 9, 10, 0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(("size", "is_one"), [(0, False), (39, False), (40, True), (5000, True)])
def test_lengths(tmp_path: Path, size: int, is_one: bool) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(size))
    assert (read_checkpoint(tmp_path / "checkpoint") is not None) == is_one


def test_files_that_are_none(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "missing") is None
    with pytest.raises(UnreadableError) as error:
        read_checkpoint(tmp_path)
    assert error.value.file == str(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnreadableError):  # and it does not hang
        read_checkpoint(tmp_path / "fifo")


# ---- the sixth long, which RocketMQ 5.5 writes

LAST_OF_5_5 = 231607
"""Start of the last message of the store of 5.5.0."""


def _kept(store: Path) -> Checkpoint:
    checkpoint = read_checkpoint(store / "checkpoint")
    assert checkpoint is not None
    return checkpoint


def _set(store: Path, **values: int) -> None:
    write_checkpoint(store / "checkpoint", _kept(store)._replace(**values))


def test_what_5_5_writes_is_read_and_shown(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    assert _kept(store).logics_physical_offset == LAST_OF_5_5
    with MessageStore.open(store) as opened:
        assert opened.info()["checkpoint"]["logics_physical_offset"] == LAST_OF_5_5


def test_append_keeps_it_up_to_date(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    with MessageStore.open(store, "rw", CONFIG) as opened:
        last = [opened.put(Message("T", b"x")).physical_offset for _ in range(3)][-1]
        opened.flush()
        assert _kept(store).logics_physical_offset == last
    assert _kept(store).logics_physical_offset == last == _kept(store).confirm_physical_offset


def test_recover_and_truncate_set_it_to_the_last_message(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    (store / "abort").write_bytes(b"1")
    _set(store, logics_physical_offset=50)
    with MessageStore.open(store) as opened:
        opened.recover()
    assert _kept(store).logics_physical_offset == LAST_OF_5_5
    with MessageStore.open(store) as opened:
        opened.truncate(LAST_OF_5_5)
    assert 0 < _kept(store).logics_physical_offset < LAST_OF_5_5
    assert _kept(store).logics_physical_offset == _kept(store).confirm_physical_offset


def test_repair_lowers_it_and_never_raises_it(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    _set(store, logics_physical_offset=1 << 40)
    with StoreFiles(store) as files:
        assert repair(files, only=["RMQ-CKPT-030"]).mended == {"RMQ-CKPT-030": 1}
    assert _kept(store).logics_physical_offset == LAST_OF_5_5
    _set(store, logics_physical_offset=50, confirm_physical_offset=1 << 40)
    with StoreFiles(store) as files:
        repair(files, only=["RMQ-CKPT-005"])
    assert _kept(store).logics_physical_offset == 50


@pytest.mark.parametrize(
    ("confirmed", "marker", "is_found"),
    [(262144, None, False), (262143, None, True), (524288, None, True), (262144, "epochFileCheckpoint", True)],
)
def test_a_broker_that_starts_without_messages_confirms_the_end_of_a_file(
    tmp_path: Path, confirmed: int, marker: str | None, is_found: bool
) -> None:
    """So does 5.5.0 on a log of zeros; the value stays when it writes messages and stops."""
    store = store_of_5_5(tmp_path)
    if marker is not None:
        (store / marker).write_text("")
    _set(store, confirm_physical_offset=confirmed)
    with MessageStore.open(store) as opened:
        assert ("RMQ-CKPT-005" in [finding.code for finding in opened.check()]) == is_found


def test_a_lost_checkpoint_of_5_5_is_written_with_it(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    (store / "checkpoint").unlink()
    with MessageStore.open(store) as opened:
        opened.recover()
    assert _kept(store).logics_physical_offset == LAST_OF_5_5


def test_a_lost_checkpoint_that_is_repaired_alone_names_the_last_unit_on_disk(tmp_path: Path) -> None:
    """With 0 there a broker with enableAcceleratedRecovery does not start after a crash."""
    store = store_of_5_5(tmp_path)
    (store / "checkpoint").unlink()
    with MessageStore.open(store) as opened:
        opened.repair(only=["RMQ-CKPT-001"])
    assert _kept(store).logics_physical_offset == LAST_OF_5_5


def test_a_store_begun_again_without_its_log_starts_at_0(tmp_path: Path) -> None:
    store = store_of_5_5(tmp_path)
    (store / "commitlog" / f"{0:020d}").unlink()
    with MessageStore.open(store) as opened:
        opened.recover(cut=True)
    assert (_kept(store).logics_physical_offset, _kept(store).confirm_physical_offset) == (0, 0)


def test_older_versions_keep_theirs_at_0(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with MessageStore.open(store, "rw") as opened:
        opened.put(Message("T", b"x"))
    (store / "abort").write_bytes(b"1")
    with MessageStore.open(store) as opened:
        opened.recover()
    assert _kept(store).logics_physical_offset == 0


def test_recovery_after_a_crash_begins_where_5_5_begins(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    become_of_5_5(store)
    with StoreFiles(store) as files:
        starts = [file.start_offset for file in files.log.files]
        for offset, start in ((starts[3], starts[3]), (starts[4] - 1, starts[3]), (1, 0)):
            assert start_after_crash(files.log, Checkpoint(logics_physical_offset=offset)) == start


def test_the_confirmed_offset_is_cut_with_the_log(tmp_path: Path) -> None:
    """Without a controller a broker keeps the start of the last message there, and clears what is past the end."""
    store = store_of_5_5(tmp_path)
    with MessageStore.open(store) as opened:
        places = [message.physical_offset for message in opened.messages()]
        opened.truncate(places[-3])
    assert _kept(store).confirm_physical_offset == places[-4]
    assert _kept(store).logics_physical_offset == places[-4]
