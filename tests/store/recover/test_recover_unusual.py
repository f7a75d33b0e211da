"""Recover, rebuild and truncate where a store is not only torn: wrong numbers, files too long, files that go."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError, RemovedError, UnreadableError
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.files import io
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.index.index_file import Geometry, IndexFile
from rmqctl.store.journal.undo import undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover import rebuild as rebuild_module
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, broker_conf, tree_state, truth
from tests.store.check.breaking import LOG_FILE_SIZE, patch
from tests.store.recover.test_rebuild import contents, run
from tests.store.recover.test_recover import assert_complete

GEOMETRY = Geometry(500, 2000)


def whole(store: Path) -> dict[str, str]:
    """What is in every file."""
    return {path: state[2] for path, state in tree_state(store).items() if path != "lock"}


# ---- the index


@pytest.fixture
def indexed(golden_store: GoldenStore) -> Path:
    """A store whose index holds each key once, in the order of the log, as RocketMQ's own does without a crash."""
    store = golden_store("clean")
    for path in (store / "index").iterdir():
        path.unlink()
    with opened(store) as files:
        assert recover(files).index_files_rebuilt == 3
    return store


def opened(store: Path) -> StoreFiles:
    return StoreFiles(store, StoreConfig(max_hash_slot_num=GEOMETRY.slots, max_index_num=GEOMETRY.entries))


def leads_behind_all_logs(path: Path) -> None:
    """An entry too many, whose offset no log has."""
    file = IndexFile(path, GEOMETRY, Descriptors())
    file.put(7, 1 << 62, file.header.end_timestamp)
    file.close()


def has_another_time(path: Path) -> None:
    patch(path, GEOMETRY.entry_position(100) + 12, struct.pack(">i", 5000))


@pytest.mark.parametrize(("number", "broken"), [(-1, leads_behind_all_logs), (0, has_another_time)])
def test_an_index_that_is_wrong_is_made_anew(indexed: Path, number: int, broken: Callable[[Path], None]) -> None:
    before = contents(indexed, "index/")
    broken(sorted((indexed / "index").iterdir())[number])
    with opened(indexed) as files:
        assert recover(files).index_files_rebuilt == 3
    assert contents(indexed, "index/") == before
    with opened(indexed) as files:
        assert recover(files, change=ChangeOptions(dry_run=True)).operations == []


def test_an_index_that_shrinks_while_it_is_compared_is_made_anew(indexed: Path) -> None:
    before = contents(indexed, "index/")
    last = max((indexed / "index").iterdir())
    whole_file = last.read_bytes()

    def another_program(passed: int) -> None:
        last.write_bytes(whole_file[: GEOMETRY.entry_position(5)])

    with opened(indexed) as files:
        assert recover(files, change=ChangeOptions(progress=another_program)).index_files_rebuilt == 3
    assert contents(indexed, "index/") == before


def test_an_index_that_cannot_be_read_is_made_anew(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(indexed, "index/")
    last, read_entries = max((indexed / "index").iterdir()), IndexFile.read_entries

    def with_a_bad_sector(file: IndexFile, number: int, count: int) -> bytes:
        if file.path == last:
            raise UnreadableError("cannot be read: Input/output error", file=last)
        return read_entries(file, number, count)

    monkeypatch.setattr(IndexFile, "read_entries", with_a_bad_sector)
    with opened(indexed) as files:
        assert recover(files).index_files_rebuilt == 3
    assert contents(indexed, "index/") == before


# ---- the files of the log


@pytest.mark.parametrize(
    ("name", "size", "is_last_alone"),
    [("clean", LOG_FILE_SIZE // 2, False), ("clean", 100_000, True), ("crc-flip-old", 100_000, False)],
)
def test_a_size_that_is_not_the_brokers_shortens_no_file(
    golden_store: GoldenStore, name: str, size: int, is_last_alone: bool
) -> None:
    """A slip in broker.conf must not take away what lies behind it in every file."""
    store = golden_store(name)
    if is_last_alone:
        for path in (store / "commitlog").iterdir():
            if int(path.name):
                path.unlink()
    before = whole(store)
    with (
        StoreFiles(store, StoreConfig(mapped_file_size_commit_log=size)) as files,
        pytest.raises(RefusedError, match=f"has 262144 bytes instead of {size} and messages follow") as told,
    ):
        recover(files)
    assert "mappedFileSizeCommitLog" in (told.value.hint or "")
    assert (told.value.file, told.value.physical_offset) == (str(store / "commitlog" / f"{0:020d}"), size)
    assert whole(store) == before


@pytest.mark.parametrize("more", [10, 50_000])
def test_what_sticks_out_of_a_file_goes_and_is_counted(golden_store: GoldenStore, more: int) -> None:
    """The log goes on in the next file, which may end before it does."""
    store = golden_store("clean")
    before = whole(store)
    path = store / "commitlog" / f"{7 * LOG_FILE_SIZE:020d}"
    path.write_bytes(path.read_bytes() + b"\xee" * more)
    with StoreFiles(store) as files:
        report = recover(files)
    log = [(row["operation"], row["path"]) for row in report.operations if "commitlog" in row["path"]]
    assert log == [("resize", f"commitlog/{path.name}")]
    assert (report.truncated_bytes, report.messages) == (more, 2500)
    after = whole(store)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {"checkpoint"}


# ---- the end of a cut


def test_the_end_of_a_log_of_full_files_is_a_place_to_cut(golden_store: GoldenStore) -> None:
    """There is nothing behind it, not even zeros."""
    store = golden_store("clean")
    end = 8 * LOG_FILE_SIZE
    (store / "commitlog" / f"{end:020d}").unlink()
    with StoreFiles(store) as files:
        report = truncate(files, end)
    assert (report.end_offset, report.messages_cut) == (end, 0)
    assert_complete(store, "clean", end)
    with StoreFiles(store) as files, pytest.raises(RefusedError, match=f"the commitlog ends at {end}"):
        truncate(files, end + 1)


def test_where_there_is_no_log_there_is_no_place_to_cut(golden_store: GoldenStore) -> None:
    store = golden_store("log-gone")
    before = whole(store)
    with StoreFiles(store) as files, pytest.raises(RefusedError, match="there is no commitlog file") as told:
        truncate(files, 0)
    assert told.value.file == str(store / "commitlog")
    assert whole(store) == before


# ---- files that another program takes away meanwhile


def test_a_queue_that_goes_while_it_is_compared(golden_store: GoldenStore) -> None:
    """It is not damaged: nobody is sent to make it anew, and nothing has been changed."""
    store = golden_store("clean")
    before = whole(store)

    def another_program(passed: int) -> None:
        shutil.rmtree(store / "consumequeue" / "BigQueues", ignore_errors=True)

    with StoreFiles(store) as files, pytest.raises(RemovedError) as told:
        recover(files, change=ChangeOptions(progress=another_program))
    assert "rebuild" not in (told.value.hint or "")
    assert "BigQueues" in str(told.value.file)
    left = {path: state for path, state in before.items() if "BigQueues" not in path}
    assert whole(store) == left
    with StoreFiles(store) as files:
        assert recover(files).units_added > 0
    assert_complete(store, "clean", 1 << 62)


# ---- rebuild


def test_a_queue_of_which_no_unit_has_a_place_goes(golden_store: GoldenStore) -> None:
    """No checksum covers queueOffset. What stood in the queue is no message's any more."""
    store = golden_store("clean")
    rows = truth("clean").messages
    keys = [(row["topic"], row["queueId"]) for row in rows]
    row = next(row for row in rows if keys.count((row["topic"], row["queueId"])) == 1)
    path = store / "commitlog" / f"{row['phyOffset'] - row['phyOffset'] % LOG_FILE_SIZE:020d}"
    patch(path, row["phyOffset"] % LOG_FILE_SIZE + 20, (1 << 40).to_bytes(8, "big"))
    folder = f"consumequeue/{row['topic']}/{row['queueId']}"
    before = contents(store, "consumequeue")
    report = run(store, index=False)
    assert (report.slot_conflicts, report.units, report.kept_queues) == (1, 2499, 0)
    assert ("move away", folder) in {(one["operation"], one["path"]) for one in report.operations}
    assert not (store / folder).exists()
    left = {path: data for path, data in before.items() if not (path + "/").startswith(folder + "/")}
    assert contents(store, "consumequeue") == left
    with StoreFiles(store) as files:
        undo(files.layout)
    assert contents(store, "consumequeue") == before


def test_a_queue_of_no_message_may_go_meanwhile(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    folder = store / "consumequeue" / "Nobody" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(2000))
    before = contents(store, "consumequeue/")

    def another_program(passed: int) -> None:
        shutil.rmtree(folder.parent, ignore_errors=True)

    with StoreFiles(store) as files:
        report = rebuild(files, index=False, change=ChangeOptions(progress=another_program))
    assert (report.units, report.kept_queues) == (2500, 0)
    assert contents(store, "consumequeue/") == {path: data for path, data in before.items() if "Nobody" not in path}


def test_one_topic_among_messages_that_take_the_plain_way(golden_store: GoldenStore) -> None:
    """Queues of the others, batch queues among them, stay as they are to the bit."""
    store = golden_store("innerbatch")
    before = whole(store)
    topic = next(path.name for path in sorted((store / "consumequeue").iterdir()))
    for path in (store / "consumequeue" / topic).rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    assert whole(store) != before
    report = run(store, index=False, topics=[topic])
    assert report.topics == [topic]
    assert whole(store) == before


def test_units_are_written_before_they_fill_the_memory(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    before = contents(store, "consumequeue")
    largest = 0

    def write(path: Path, position: int, data: Any) -> None:
        nonlocal largest
        largest = max(largest, len(data))
        io_write(path, position, data)

    io_write = io.write_range
    monkeypatch.setattr(io, "write_range", write)
    monkeypatch.setattr(rebuild_module, "_HELD_UNITS", 10)
    with StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent))) as files:
        rebuild(files, index=False)
    assert contents(store, "consumequeue") == before
    assert 0 < largest <= 2000
