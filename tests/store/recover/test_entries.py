"""A DLedger log is recovered as DLedger does it: cut where an entry is wrong, its index completed, all else as ever."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.formats.errors import RefusedError, UnsupportedError
from rmqctl.formats.layouts import CHECKPOINT, DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT
from rmqctl.store import MessageStore
from rmqctl.store.compare.entries import EntryReading, log_end
from rmqctl.store.compare.replicas import open_index
from rmqctl.store.journal.undo import undo as journal_undo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.predict.predicting import predict
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.recover.recover import recover
from rmqctl.store.recover.report import RecoverReport
from rmqctl.store.store_files import StoreFiles, read_checkpoint
from tests.goldens import LogGolden, log_golden, tree_state
from tests.proof.crash.state import files_of, in_log
from tests.store.journal import verbs
from tests.store.journal.commands import CONFIG
from tests.store.rocksdb.stores import unpacked
from tests.store.small_dledger import into_dledger, small_index

HEAD, UNIT = DLEDGER_ENTRY_HEAD.size, DLEDGER_INDEX_UNIT.size
MESSAGES, FILE_SIZE, END = 320, 262144, 273251


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-dledger", tmp_path_factory.mktemp("golden"))


@pytest.fixture
def store(golden: LogGolden, tmp_path: Path) -> Path:
    return golden.copied_to(tmp_path / "store")


class Entry(NamedTuple):
    """The head of an entry as DLedger names its fields, and the number of its file."""

    magic: int
    size: int
    number: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int


def data_file(store: Path, offset: int) -> Path:
    return store / "dledger-n0" / "data" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"


def index_file(store: Path) -> Path:
    return store / "dledger-n0" / "index" / f"{0:020d}"


def entries_of(store: Path) -> list[Entry]:
    """The entries up to the one that DLedger does not take (DLedgerMmapFileStore#recover), field by field."""
    found: list[Entry] = []
    for path in sorted((store / "dledger-n0" / "data").iterdir()):
        data, start, at = path.read_bytes(), int(path.name), 0
        while data[at : at + 4] != b"\xff" * 4:
            if at + HEAD > len(data):
                return found
            one = Entry(*struct.unpack_from(">iiqqqiiii", data, at))
            fits = one.pos == start + at and one.size == HEAD + one.body_size and at + one.size <= len(data)
            follows = not found or (one.number == found[-1].number + 1 and one.term >= found[-1].term)
            if not (fits and follows and one.magic == 1 and one.size > HEAD):
                return found
            found.append(one)
            at += one.size
    return found


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def put_at(store: Path, offset: int, data: bytes) -> None:
    put(data_file(store, offset), offset % FILE_SIZE, data)


def recovered(store: Path, **options: bool) -> RecoverReport:
    with MessageStore.open(store) as opened:
        below = options.pop("below_confirm", True)
        return opened.recover(change=ChangeOptions(below_confirm=below), **options)


def alarms(store: Path) -> list[str]:
    with MessageStore.open(store) as opened:
        return [one.code for one in opened.check("full") if one.severity.is_alarm]


def bodies(store: Path) -> list[tuple[int, bytes]]:
    with MessageStore.open(store) as opened:
        return sorted((one.physical_offset, bytes(one.body)) for one in opened.messages(order="queue"))


def undo(store: Path) -> None:
    with MessageStore.open(store) as opened:
        opened.undo()


def check_whole(store: Path, expected: list[tuple[int, bytes]]) -> None:
    """All of `expected` and nothing else is in queues, index and log; nothing is left to do."""
    # what was committed is not there, or of a term that is to come
    assert set(alarms(store)) <= {"RMQ-DLG-005", "RMQ-DLG-006"}
    assert bodies(store) == expected
    assert recovered(store).operations == []


def test_nothing_is_changed_where_nothing_is_wrong(golden: LogGolden) -> None:
    before = tree_state(golden.store)
    report = recovered(golden.store)
    assert (report.operations, report.end_offset, report.messages) == ([], END, MESSAGES)
    assert tree_state(golden.store) == before


Break = Callable[[Path, Entry], None]


def _no_body(store: Path, last: Entry) -> None:
    put_at(store, last.pos + HEAD + 60, bytes(last.body_size - 60))


def _half_body(store: Path, last: Entry) -> None:
    put_at(store, last.pos + last.size - 200, bytes(200))


def _no_head(store: Path, last: Entry) -> None:
    put_at(store, last.pos, bytes(40))


def _half_head(store: Path, last: Entry) -> None:
    put_at(store, last.pos + 20, bytes(last.size - 20))


@pytest.mark.parametrize("tear", [_no_body, _half_body, _no_head, _half_head])
def test_a_torn_last_entry_is_cut(store: Path, tear: Break) -> None:
    expected = bodies(store)[:-1]
    last = entries_of(store)[-1]
    tear(store, last)
    # its head may be whole, and DLedger would keep it; a message whose head is lost cannot be told from none
    is_found_good = tear is _no_head
    (store / "abort").write_bytes(b"1")
    before = tree_state(store)
    if is_found_good:
        with pytest.raises(RefusedError, match="DLedger ends its log here, before 1 good message"):
            recovered(store)
        assert tree_state(store) == before
    report = recovered(store, cut=is_found_good)
    assert (report.end_offset, report.messages, report.messages_cut) == (last.pos, MESSAGES - 1, int(is_found_good))
    assert data_file(store, last.pos).read_bytes()[last.pos % FILE_SIZE :].count(0) == FILE_SIZE - last.pos % FILE_SIZE
    with index_file(store).open("rb") as file:
        file.seek(last.number * UNIT)
        assert file.read(UNIT) == bytes(UNIT)
    assert len(entries_of(store)) == MESSAGES - 1
    check_whole(store, expected)
    undo(store)
    assert tree_state(store) == before


def test_what_the_group_has_committed_is_cut_only_when_asked_for(store: Path) -> None:
    _half_body(store, entries_of(store)[-1])
    before = tree_state(store)
    with pytest.raises(RefusedError, match="entry 318, and entry 319 was committed"):
        recovered(store, below_confirm=False)
    assert tree_state(store) == before
    (store / "dledger-n0" / "checkpoint").write_bytes(b"endIndex=319\ncommittedIndex=318\n")
    assert recovered(store, below_confirm=False).end_offset == entries_of(store)[-1].pos + entries_of(store)[-1].size


@pytest.mark.parametrize("field", ["magic_code", "size", "entry_index", "term", "pos", "body_size"])
def test_good_messages_after_a_wrong_entry_are_cut_only_when_asked_for(store: Path, field: str) -> None:
    entries, expected = entries_of(store), bodies(store)
    at = entries[200].pos
    offset, size = DLEDGER_ENTRY_HEAD.offset(field), 8 if field in ("entry_index", "term", "pos") else 4
    # a term that rises is wrong where the next one falls
    put_at(store, at + offset, (7).to_bytes(size, "big"))
    kept = 201 if field == "term" else 200
    before = tree_state(store)
    with pytest.raises(RefusedError, match="DLedger ends its log here"):
        recovered(store)
    assert tree_state(store) == before
    report = recovered(store, cut=True)
    assert (report.end_offset, report.messages) == (entries[kept].pos, kept)
    assert report.messages_cut == MESSAGES - kept
    assert not data_file(store, FILE_SIZE).exists()
    check_whole(store, expected[:kept])
    undo(store)
    assert tree_state(store) == before


def test_entries_that_a_new_leader_has_replaced_are_no_loss(store: Path) -> None:
    """DLedger cuts without clearing: what is after the newest entry may be older ones, which are whole."""
    entries = entries_of(store)
    at = entries[250]
    put_at(store, at.pos + DLEDGER_ENTRY_HEAD.offset("term"), (3).to_bytes(8, "big"))
    put(index_file(store), at.number * UNIT + DLEDGER_INDEX_UNIT.offset("term"), (3).to_bytes(8, "big"))
    report = recovered(store)
    assert (report.messages, report.messages_cut, report.end_offset) == (251, 0, at.pos + at.size)
    undo(store)
    with pytest.raises(RefusedError, match="entry 250, and entry 319 was committed"):
        recovered(store, below_confirm=False)


def test_damage_in_a_message_stays_where_dledger_goes_on(store: Path) -> None:
    expected = bodies(store)
    at = entries_of(store)[100]
    put_at(store, at.pos + HEAD + 90, b"\xff\xff")
    shutil.rmtree(store / "consumequeue")
    report = recovered(store)
    assert (report.messages, report.truncated_bytes) == (MESSAGES - 1, 0)
    assert [row["physical_offset"] for row in report.damaged] == [at.pos + HEAD]
    assert len(entries_of(store)) == MESSAGES
    assert bodies(store) == [one for one in expected if one[0] != at.pos + HEAD]


def _lose_index(store: Path) -> None:
    shutil.rmtree(store / "dledger-n0" / "index")


def _shorten_index(store: Path) -> None:
    with index_file(store).open("r+b") as file:
        file.truncate(1000)


def _lengthen_index(store: Path) -> None:
    with index_file(store).open("r+b") as file:
        file.truncate(index_file(store).stat().st_size + 64)
        file.seek(-8, 2)
        file.write(b"leftover")


def _empty_index(store: Path) -> None:
    with index_file(store).open("r+b") as file:
        file.truncate(0)


def _wrong_units(store: Path) -> None:
    put(index_file(store), 5 * UNIT + 15, b"\x7f")
    put(index_file(store), 9 * UNIT, bytes(3 * UNIT))


def _units_after_the_end(store: Path) -> None:
    put(index_file(store), MESSAGES * UNIT, b"\1" * 500)
    with index_file(store).with_name(f"{167772160:020d}").open("wb") as file:
        file.write(b"\1" * 64)
        file.truncate(167772160)


@pytest.mark.parametrize(
    "damage", [_lose_index, _shorten_index, _lengthen_index, _empty_index, _wrong_units, _units_after_the_end]
)
def test_the_index_is_completed(store: Path, damage: Callable[[Path], None]) -> None:
    expected, whole = bodies(store), index_file(store).read_bytes()
    damage(store)
    before = tree_state(store)
    recovered(store)
    assert index_file(store).read_bytes() == whole
    assert [path.name for path in index_file(store).parent.iterdir()] == [f"{0:020d}"]
    check_whole(store, expected)
    undo(store)
    assert tree_state(store) == before


@pytest.mark.parametrize("lost", ["consumequeue", "index", "checkpoint", "consumequeue/TopicTest/0"])
def test_queues_and_index_are_completed(store: Path, lost: str) -> None:
    expected = bodies(store)
    path = store / lost
    path.unlink() if path.is_file() else shutil.rmtree(path)
    (store / "abort").write_bytes(b"1")
    report = recovered(store)
    assert (report.was_clean, report.messages, report.truncated_bytes) == (False, MESSAGES, 0)
    assert not (store / "abort").exists()
    check_whole(store, expected)


def test_after_a_crash_queues_have_all_that_rocketmq_serves(tmp_path: Path) -> None:
    crashed = log_golden("v55-dledger-crash", tmp_path / "golden")
    store = crashed.copied_to(tmp_path / "store")
    assert (store / "abort").exists()
    recovered(store)
    check_whole(store, bodies(store))
    assert len(bodies(store)) == 1300
    with StoreFiles(store) as files:
        found = {(queue.topic, queue.queue_id): queue.max_offset for queue in files.queues.all()}
    # RocketMQ itself had not yet dispatched the last entries when it was asked
    assert all(queue["max"] <= found[queue["topic"], queue["queueId"]] for queue in crashed.rows("queue"))
    assert sum(found.values()) == 1300


@pytest.mark.parametrize("seed", range(40))
def test_the_log_ends_where_a_plain_loop_ends_it(store: Path, seed: int) -> None:
    """Whatever is damaged: reading heads in bulk comes to the same entries as one after the other."""
    chance, entries = random.Random(seed), entries_of(store)
    for _ in range(chance.randrange(1, 4)):
        one = chance.choice(entries)
        # heads mostly, and mostly their last bytes; frames, too, which do not count
        at = one.pos + chance.choice([3, 7, 15, 23, 31, 47, chance.randrange(HEAD), HEAD + 8, HEAD + 100])
        put_at(store, at, chance.choice([b"\0", b"\1", b"\xff", bytes([chance.randrange(256)])]))
    if seed % 4 == 0:
        put_at(store, FILE_SIZE - chance.randrange(1, 400), b"\0")
    expected = entries_of(store)
    with StoreFiles(store) as files:
        assert files.dledger is not None
        index = open_index(files.dledger, files.log)
        reading = EntryReading(files.log, 0)
        found = [int(one) for rows in reading.rows() for one in rows["pos"]]
        assert found == [one.pos for one in expected]
        end = log_end(files.log, index, full=True)
        assert (end.last, end.term) == ((expected[-1].number, expected[-1].term) if expected else (-1, -1))
        last = expected[-1] if expected else Entry(0, 0, 0, 0, 0, 0, 0, 0, 0)
        assert end.end in (last.pos + last.size, FILE_SIZE)
        assert end.whole_end <= end.end


def test_damage_counts_that_dledger_reads_once_the_log_is_shorter(tmp_path: Path) -> None:
    """It reads the last three files: with fewer of them that is an earlier one."""
    store = log_golden("v55-dledger-crash", tmp_path / "golden").store
    entries = entries_of(store)
    early = next(one for one in entries if one.pos > FILE_SIZE)
    late = next(one for one in entries if one.pos > 3 * FILE_SIZE)
    put_at(store, early.pos, b"\xee" * 8)
    # what DLedger does not read stays
    assert recovered(store).end_offset == entries[-1].pos + entries[-1].size
    put_at(store, late.pos, b"\xee" * 8)
    with pytest.raises(RefusedError, match=f"before {len(entries) - early.number} good messages"):
        recovered(store)
    assert recovered(store, cut=True).end_offset == early.pos
    check_whole(store, bodies(store))


def test_a_file_with_more_bytes_gets_its_size(tmp_path: Path) -> None:
    store = log_golden("v55-dledger-crash", tmp_path / "golden").store
    expected = bodies(store)
    with data_file(store, FILE_SIZE).open("ab") as file:
        file.write(b"more")
    recovered(store)
    assert data_file(store, FILE_SIZE).stat().st_size == FILE_SIZE
    check_whole(store, expected)


def test_a_damaged_term_is_not_taken_for_an_older_one(store: Path) -> None:
    """Neither that of the entry that is too small, nor that of the one before it."""
    for entry in entries_of(store):
        put_at(store, entry.pos + 23, b"\1")
        put(index_file(store), entry.number * UNIT + UNIT - 1, b"\1")
    last = entries_of(store)[-1]
    put_at(store, last.pos + 23, b"\0")
    with pytest.raises(RefusedError, match=r"the entry has the term 0 after 1: .* before 1 good message"):
        recovered(store)


@pytest.mark.parametrize("seed", range(24))
def test_any_damage_is_mended_or_refused(tmp_path: Path, seed: int) -> None:
    """No good message goes uncounted, nothing is left to do, DLedger would end the log no earlier; undo is exact."""
    chance, root = random.Random(seed), tmp_path / "disk" / "s"
    with small_index():
        verbs.whole(root)
        into_dledger(root, CONFIG)
        entry_files = sorted((root / "dledger-n0" / "data").iterdir())
        for _ in range(chance.randrange(1, 4)):
            path = chance.choice(entry_files if chance.random() < 0.6 else sorted(root.rglob("0*0")))
            if path.is_file():
                at = chance.randrange(path.stat().st_size + 1)
                if chance.random() < 0.2:
                    os.truncate(path, at)
                else:
                    put(path, at, chance.choice([b"\0", b"\1", b"\xff", chance.randbytes(4), bytes(300)]))
        before, held = files_of(root), in_log(root)
        with StoreFiles(root, CONFIG) as files:
            predicted = predict(files, "5.5.0")
        try:
            with StoreFiles(root, CONFIG) as files:
                report = recover(files, ChangeOptions(below_confirm=True), cut=True)
        except RefusedError:
            assert files_of(root) == before
            return
        assert len(set(held) - set(in_log(root))) <= report.messages_cut
        assert not predicted.loads or report.end_offset <= (predicted.end_offset or 0)
        with StoreFiles(root, CONFIG) as files:
            again = predict(files, "5.5.0")
            assert (again.end_offset, again.messages_lost, again.loads) == (report.end_offset, 0, True)
            assert recover(files, ChangeOptions(below_confirm=True)).operations == []
        if report.journal is not None:
            journal_undo(CONFIG.layout(root))
            assert files_of(root) == before


@pytest.mark.parametrize(
    "claims",
    [
        {"physic_msg_timestamp": 1 << 42},
        {"logics_msg_timestamp": 1 << 42},
        {"confirm_physical_offset": END + 1},
        {"logics_physical_offset": END + 1},
        {"index_msg_timestamp": -5},
        {"master_flushed_offset": -1, "confirm_physical_offset": -9},
    ],
)
def test_a_checkpoint_that_claims_too_much_is_renewed(store: Path, claims: dict[str, int]) -> None:
    """By nothing else in a store where `repair` is refused."""
    known = read_checkpoint(store / "checkpoint")
    assert known is not None
    put(store / "checkpoint", 0, CHECKPOINT.struct.pack(*known._replace(**claims)))
    before = files_of(store)
    with MessageStore.open(store) as opened:
        found = [(one.code[:8], one.fix) for one in opened.check("full") if one.severity.is_alarm]
    assert found
    assert set(found) == {("RMQ-CKPT", "rmqctl recover")}
    assert [one["operation"] for one in recovered(store).operations] == ["write"]
    assert alarms(store) == []
    assert recovered(store).operations == []
    undo(store)
    assert files_of(store) == before


@pytest.mark.parametrize("reached", [END, END - 400, 0])
def test_queues_in_rocksdb_are_left_to_the_broker(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    """The log is cut. `abort` stays where queues end before it: a start without it dispatches nothing to them."""
    whole = bodies(store)
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(unpacked("rocksdb-55-only", tmp_path) / "consumequeue", store / "consumequeue")
    monkeypatch.setattr(RocksdbQueues, "dispatched_to", lambda _: reached)
    (store / "abort").write_bytes(b"1")
    last = entries_of(store)[-1]
    put_at(store, last.pos + HEAD + 60, bytes(100))
    before = files_of(store)
    report = recovered(store)
    assert (report.end_offset, report.messages, report.queues_changed) == (last.pos, MESSAGES - 1, 0)
    with MessageStore.open(store) as opened:
        assert sorted((one.physical_offset, bytes(one.body)) for one in opened.messages(order="log")) == whole[:-1]
    assert (store / "abort").exists() == (reached < last.pos)
    after = files_of(store)
    assert {name: data for name, data in after.items() if name.startswith("consumequeue")} == {
        name: data for name, data in before.items() if name.startswith("consumequeue")
    }
    assert recovered(store).operations == []
    undo(store)
    assert files_of(store) == before


def test_other_changes_and_fillers_are_refused(golden: LogGolden) -> None:
    before = tree_state(golden.store)
    with (
        MessageStore.open(golden.store) as opened,
        pytest.raises(UnsupportedError, match="which DLedger and `rmqctl recover` alone change"),
    ):
        opened.recover(bridge=True)
    assert tree_state(golden.store) == before
