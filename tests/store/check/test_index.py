"""Commitlog against index, both ways: each kind of fault in a copy of a real store, and what is said about it.

Numbers in the names of tests are those of the troubles in the project's list of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.message import Message
from rmqctl.store.check.catalogue import Severity
from rmqctl.store.check.cross import Level
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore
from tests.store.check.breaking import checked, codes, messages, patch, put
from tests.store.check.units import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    cross,
    entry,
    entry_position,
    header,
    index_files,
    of_code,
    put_entry,
    put_header,
)
from tests.store.write.writing import SMALL

PER_FILE = INDEX_ENTRIES - 1


@pytest.fixture
def clean(golden_store: GoldenStore) -> Path:
    return golden_store("clean")


def test_45_first_file_gone(clean: Path) -> None:
    """The same messages are then found by their queues only."""
    first, second, _ = index_files(clean)
    begin, end = entry(first, 1)[1], entry(second, 1)[1]
    first.unlink()
    found = of_code(cross(clean), "RMQ-IDX-001")
    assert (found.severity, found.physical_offset, found.data_lost) == (Severity.ERROR, begin, False)
    lost = [message for message in messages(clean) if message.physical_offset < end and index_keys(message)]
    # the keys of one message may stand in both files
    assert found.messages in (len(lost), len(lost) + 1)


def test_44_48_last_file_gone(clean: Path) -> None:
    """Queries by key find nothing of the last messages."""
    last = index_files(clean)[-1]
    begin = entry(last, 1)[1]
    last.unlink()
    found = of_code(cross(clean), "RMQ-IDX-002")
    assert (found.severity, found.physical_offset) == (Severity.WARNING, begin)


def test_index_gone(golden_store: GoldenStore) -> None:
    found = of_code(cross(golden_store("index-lost")), "RMQ-IDX-003")
    assert (found.severity, found.found) == (Severity.ERROR, 0)


def test_store_without_an_index(golden_store: GoldenStore) -> None:
    """MessageIndexEnable=false is no damage, and with the configuration not even worth a word."""
    store = golden_store("noindex")
    assert of_code(cross(store), "RMQ-IDX-004").severity is Severity.NOTICE
    findings, _ = checked(store, config=StoreConfig(message_index_enable=False))
    assert not findings


def test_entry_that_leads_to_another_message(clean: Path) -> None:
    path = index_files(clean)[0]
    hashed, offset, difference, previous = entry(path, 500)
    put_entry(path, 500, hashed, entry(path, 600)[1], difference, previous)
    findings = cross(clean)
    found = of_code(findings, "RMQ-IDX-005")
    assert (found.messages, found.file) == (1, path)
    assert "entry 500" in found.message
    assert of_code(findings, "RMQ-IDX-001").physical_offset == offset


def test_entry_with_another_key(clean: Path) -> None:
    path = index_files(clean)[0]
    hashed, offset, difference, previous = entry(path, 500)
    put_entry(path, 500, hashed ^ 1 << 20, offset, difference, previous)
    # what hangs in the chain of another slot is unreachable too
    assert {"RMQ-IDX-001", "RMQ-IDX-005"} <= codes(cross(clean))


def test_entry_that_points_into_the_middle_of_a_message(clean: Path) -> None:
    path = index_files(clean)[1]
    hashed, offset, difference, previous = entry(path, 77)
    put_entry(path, 77, hashed, offset + 3, difference, previous)
    assert codes(cross(clean)) == {"RMQ-IDX-001", "RMQ-IDX-005"}


def test_entry_that_points_at_a_blank_frame(clean: Path) -> None:
    path = index_files(clean)[1]
    before = next(
        number for number in range(1, PER_FILE) if entry(path, number + 1)[1] >= 1048576 > entry(path, number)[1]
    )
    hashed, _, difference, previous = entry(path, before)
    put_entry(path, before, hashed, 1048576 - 4, difference, previous)
    found = of_code(cross(clean), "RMQ-IDX-005")
    assert (found.messages, found.physical_offset) == (1, 1048576 - 4)


def test_43_colliding_keys_are_no_finding(tmp_path: Path) -> None:
    """`Aa` and `BB` have one hash, also within one message."""
    assert key_hash("T", "Aa") == key_hash("T", "BB")
    store = tmp_path / "store"
    with MessageStore.open(store, "rw", SMALL, create=True) as opened:
        for keys in ("Aa", "BB", "Aa BB", "hot hot", ""):
            assert opened.put(Message("T", b"x", properties={"KEYS": keys} if keys else {})).status.is_stored
    assert {code for code in codes(cross(store)) if code.startswith("RMQ-IDX")} == set()


def test_47_index_of_a_log_that_began_anew(golden_store: GoldenStore) -> None:
    """A broker indexes nothing until the log has grown beyond what the index knows."""
    store, other = golden_store("clean"), golden_store("syncflush")
    shutil.rmtree(store / "commitlog")
    shutil.copytree(other / "commitlog", store / "commitlog")
    found = of_code(cross(store), "RMQ-IDX-007")
    ends = [entry(path, number)[1] for path in index_files(store) for number in range(1, header(path)[5])]
    assert found.messages == sum(offset >= 153537 for offset in ends)


def test_end_of_the_log_lost(clean: Path) -> None:
    last = messages(clean)[-1]
    put(clean, last.physical_offset, bytes(last.total_size))
    found = of_code(cross(clean), "RMQ-IDX-007")
    assert (found.messages, found.physical_offset, found.data_lost) == (1, last.physical_offset, None)


def test_46_message_indexed_twice(golden_store: GoldenStore) -> None:
    """RocketMQ dispatches the last message again at a start."""
    store = golden_store("clean")
    path = index_files(store)[-1]
    begin, end, first, last, slots, count = header(path)
    again = [number for number in range(1, count) if entry(path, number)[1] == last]
    for step, number in enumerate(again):
        hashed, offset, difference, _ = entry(path, number)
        slot_at = 40 + 4 * (hashed % INDEX_SLOTS)
        before = int.from_bytes(path.read_bytes()[slot_at : slot_at + 4], "big")
        put_entry(path, count + step, hashed, offset, difference, before)
        patch(path, slot_at, (count + step).to_bytes(4, "big"))
    put_header(path, [begin, end, first, last, slots, count + len(again)])
    found = of_code(cross(store), "RMQ-IDX-008")
    assert (found.severity, found.messages, found.physical_offset) == (Severity.NOTICE, 1, last)
    assert codes(cross(store)) == {"RMQ-IDX-008"}


@pytest.mark.parametrize(("field", "change"), [(0, -2000), (1, 5000), (2, 1), (3, -1), (4, 1), (4, -1), (5, -1)])
def test_header_that_is_not_of_its_entries(field: int, change: int, clean: Path) -> None:
    path = index_files(clean)[1]
    fields = header(path)
    fields[field] += change
    put_header(path, fields)
    expected = {0: "RMQ-IDX-017", 5: "RMQ-IDX-001"}.get(field, "RMQ-IDX-009")
    found = [finding for finding in cross(clean) if finding.code == expected]
    assert found
    assert expected == "RMQ-IDX-001" or found[0].file == path


@pytest.mark.parametrize("late", [0, 999, 1000, 10**9])
def test_a_message_that_is_later_than_an_entry_can_say(tmp_path: Path, late: int) -> None:
    """Its store time is not covered by a checksum; a broker and a rebuild make the same entry of it."""
    times = [1_700_000_000_000]
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: times[-1]) as store:
        assert store.put(Message("T", b"", properties={"KEYS": "a"})).status.is_stored
        times.append(times[0] + 0x7FFFFFFF * 1000 + late)
        assert store.put(Message("T", b"", properties={"KEYS": "b"})).status.is_stored
    assert header(index_files(tmp_path / "s")[0])[:2] == times
    assert cross(tmp_path / "s") == []


def test_header_that_counts_too_much(clean: Path) -> None:
    path = index_files(clean)[1]
    put_header(path, [*header(path)[:5], 5000])
    assert "RMQ-IDX-015" in codes(cross(clean))


def test_slots_of_garbage(golden_store: GoldenStore) -> None:
    found = of_code(cross(golden_store("index-garbage")), "RMQ-IDX-010")
    assert (found.severity, found.found, found.fix) == (Severity.ERROR, INDEX_SLOTS, "rmqctl recover")


def test_chain_that_is_broken(clean: Path) -> None:
    path = index_files(clean)[0]
    number = next(number for number in range(900, PER_FILE) if entry(path, number)[3] > 1)
    hashed, offset, difference, _ = entry(path, number)
    put_entry(path, number, hashed, offset, difference, 0)
    found = of_code(cross(clean), "RMQ-IDX-011")
    assert (found.file, found.found) == (path, 1)
    assert f"byte {entry_position(number)} " in found.message


@pytest.mark.parametrize("step", [0, 5])
def test_chain_in_a_circle(step: int, clean: Path) -> None:
    path = index_files(clean)[0]
    hashed, offset, difference, _ = entry(path, 900)
    put_entry(path, 900, hashed, offset, difference, 900 + step)
    assert of_code(cross(clean), "RMQ-IDX-012").file == path


def test_42_entries_with_a_wrong_time(clean: Path) -> None:
    path = index_files(clean)[0]
    hashed, offset, difference, previous = entry(path, 1700)
    put_entry(path, 1700, hashed, offset, difference + 4, previous)
    found = of_code(cross(clean), "RMQ-IDX-017")
    assert (found.physical_offset, found.expected, found.found) == (offset, difference, difference + 4)


def test_42_time_of_the_first_entry_as_rocketmq_writes_it(clean: Path) -> None:
    """A defect of RocketMQ, worth a word and no alarm."""
    path = index_files(clean)[1]
    hashed, offset, difference, previous = entry(path, 1)
    put_entry(path, 1, hashed, offset, difference + 3600, previous)
    found = of_code(cross(clean), "RMQ-IDX-018")
    assert (found.severity, found.file, found.found) == (Severity.NOTICE, path, 3600)


def _add_empty_files(store: Path, count: int) -> None:
    """Add index files of the full size that hold nothing, as a broker that cannot open the one it made leaves them."""
    size = index_files(store)[0].stat().st_size
    for number in range(count):
        path = store / "index" / f"209901010000{number:05d}"
        path.touch()
        os.truncate(path, size)


def test_46_a_file_that_is_not_full(clean: Path) -> None:
    first = index_files(clean)[0]
    _add_empty_files(clean, 1)
    found = of_code(cross(clean), "RMQ-IDX-016")
    assert (found.severity, found.file) == (Severity.NOTICE, index_files(clean)[2])
    assert "RMQ-IDX-032" not in codes(cross(clean))
    assert first.exists()


@pytest.mark.parametrize("by", [rebuild, recover, repair])
def test_46_whatever_mends_the_index_makes_few_files(clean: Path, by: Callable[..., object]) -> None:
    _add_empty_files(clean, 10)
    with StoreFiles(clean) as files:
        by(files)
    assert len(index_files(clean)) == 3


@pytest.mark.parametrize("level", [Level.DEFAULT, Level.QUICK])
def test_46_more_files_than_the_entries_need(clean: Path, level: Level) -> None:
    """They fill the disk: one finding for all of them, and its fix makes as few files as possible."""
    before = index_files(clean)
    size = before[0].stat().st_size
    _add_empty_files(clean, 40)
    findings, summary = checked(clean, level)
    found = of_code(findings, "RMQ-IDX-032")
    assert (found.severity, found.fix) == (Severity.WARNING, "rmqctl rebuild --index")
    assert (found.expected, found.found, found.bytes) == (3, 43, 40 * size)
    assert f"43 index files ({43 * size} bytes)" in found.message
    assert f"the log has {summary.log_end} bytes" in found.message
    assert "RMQ-IDX-016" not in codes(findings)
    with StoreFiles(clean) as files:
        rebuild(files, queues=False)
    assert codes(checked(clean, level)[0]) & {"RMQ-IDX-016", "RMQ-IDX-032"} == set()
    assert len(index_files(clean)) == 3


def test_strangers(clean: Path) -> None:
    (clean / "index" / "notes.txt").write_text("x")
    (clean / "index" / "20990101000000000").write_bytes(b"\xff" * 777)
    findings = cross(clean)
    stray = of_code(findings, "RMQ-IDX-014")
    assert (stray.file, stray.severity) == (clean / "index" / "notes.txt", Severity.NOTICE)
    assert of_code(findings, "RMQ-IDX-013").file == clean / "index" / "20990101000000000"


def test_noise_is_no_index(clean: Path) -> None:
    import random

    path = index_files(clean)[1]
    data = random.Random(1).randbytes(path.stat().st_size - 40)
    patch(path, 40, data)
    found = cross(clean)
    assert {"RMQ-IDX-001"} < codes(found)
    assert {finding.file for finding in found if finding.code in ("RMQ-IDX-010", "RMQ-IDX-013")} == {path}


@pytest.mark.parametrize("mend", ["recover", "rebuild"])
def test_mends_leave_nothing_to_find(mend: str, clean: Path) -> None:
    index_files(clean)[0].unlink()
    path = index_files(clean)[0]
    hashed, offset, difference, previous = entry(path, 500)
    put_entry(path, 500, hashed, offset + 1, difference, previous)
    assert cross(clean)
    with StoreFiles(clean) as files:
        if mend == "recover":
            recover(files)
        else:
            rebuild(files, queues=False)
    assert cross(clean) == []


def test_46_full_files_of_a_smaller_size_are_needed(tmp_path: Path) -> None:
    """maxIndexNum was lowered: what one large file would hold fills several small ones."""
    for count, entries in ((399, 400), (195, 40)):
        config = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=entries)
        with MessageStore.open(tmp_path / "store", "rw", config, create=True) as store:
            for number in range(count):
                store.put(Message("T", b"x", properties={"KEYS": str(number)}))
    assert len(index_files(tmp_path / "store")) >= 6
    assert "RMQ-IDX-032" not in codes(cross(tmp_path / "store"))
