"""A store whose commitlog is a DLedger log, as RocketMQ 5.5.0 left it: all verbs read it, only `recover` changes it."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.layouts import DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT
from rmqctl.formats.message import StoredMessage
from rmqctl.output import outcome as exit_codes
from rmqctl.pipeline.splits import open_split, plan_splits, split_columns
from rmqctl.store import MessageStore
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import walk
from rmqctl.store.options import UNHEARD
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.follow import LogFollower
from tests.goldens import LogGolden, log_golden, tree_state
from tests.rmqctl.looking import run

_HEAD = DLEDGER_ENTRY_HEAD.size
_MESSAGES, _FILE_SIZE = 320, 262144


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-dledger", tmp_path_factory.mktemp("golden"))


@pytest.fixture
def store(golden: LogGolden, tmp_path: Path) -> Path:
    return golden.copied_to(tmp_path / "store")


def _data(store: Path, number: int = 0) -> Path:
    return store / "dledger-n0" / "data" / f"{number * _FILE_SIZE:020d}"


def _entries(store: Path) -> list[int]:
    """The positions of the entries of the first file."""
    data, found, at = _data(store).read_bytes(), [], 0
    while int.from_bytes(data[at : at + 4], "big") == 1:
        found.append(at)
        at += int.from_bytes(data[at + 4 : at + 8], "big")
    return found


def _put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _codes(store: Path, *more: str) -> dict[str, dict[str, Any]]:
    return {row["code"]: row for row in run("check", "-s", store, "--json", *more).objects if "code" in row}


def test_queues_and_messages_are_those_of_rocketmq(golden: LogGolden) -> None:
    """storeTimestampAndPhyAt holds [slot, store time, physical offset], -1 where there is no unit."""
    with MessageStore.open(golden.store) as opened:
        assert sum(1 for _ in opened.scan()) > 0
        queues = golden.rows("queue")
        assert sum(queue["max"] for queue in queues) == _MESSAGES
        for queue in queues:
            for slot, timestamp, physical_offset in queue["storeTimestampAndPhyAt"]:
                if timestamp < 0:
                    continue
                [message] = opened.get(queue["topic"], queue["queueId"], slot, 1).messages
                assert (message.physical_offset, message.store_timestamp) == (physical_offset, timestamp)
        assert opened.info()["commitlog"]["max_offset"] == max(row["phyOffset"] for row in golden.rows("look")) - 1000


def test_every_look_reads_it(golden: LogGolden, tmp_path: Path) -> None:
    before = tree_state(golden.store)
    for verb in (
        ("cat", "--json"), ("cat", "--order", "queue", "--json"), ("sql", "select * from messages", "--json")
    ):  # fmt: skip
        done = run(*verb, "-s", golden.store)
        assert (done.code, len(done.objects), done.err) == (exit_codes.OK, _MESSAGES, ""), verb
    message = run("query", "-s", golden.store, "-t", "TopicTest", "-q", 0, "-o", 0, "--json").objects[0]
    place = str(message["physical_offset"])
    for verb in (("query", "-k", message["keys"][0]), ("query", "-i", message["msg_id"]), ("where", place)):
        assert run(*verb, "-s", golden.store).code == exit_codes.OK
    assert run("stats", "-s", golden.store, "--json").objects[0]["messages"] == _MESSAGES
    assert sum(row["messages"] for row in run("ls", "-s", golden.store, "--json").objects) == _MESSAGES
    assert run("export", "-s", golden.store, tmp_path / "all.jsonl", "--format", "jsonl").code == exit_codes.OK
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == _MESSAGES
    known = run("info", "-s", golden.store, "--json").objects[0]["dledger"]
    assert known == {
        "self_id": "n0", "first": 0, "last": 319, "last_term": 0, "term": 0, "vote": "n0", "committed": 319,
        "end": 319, "uncommitted": 0,
    }  # fmt: skip
    codes = run("check", "-s", golden.store, "--json")
    assert (codes.code, [row["code"] for row in codes.objects if "code" in row][:1]) == (
        exit_codes.OK,
        ["RMQ-FILE-050"],
    )
    assert tree_state(golden.store) == before


def test_changes_are_refused_with_the_way_out(golden: LogGolden) -> None:
    before = tree_state(golden.store)
    for verb in (
        ("recover", "--bridge"),
        ("rebuild", "--timer"),
        ("repair",),
        ("repair", "--dry-run"),
        ("truncate", "--at", "0"),
        ("clean", "-y"),
        ("append", "-t", "Orders", "--body", "x"),
        ("offsets", "set", "-g", "g", "-t", "Orders", "-q", "0", "--offset", "0", "--new-group"),
    ):
        done = run(*verb, "-s", golden.store)
        assert (done.code, done.out) == (exit_codes.REFUSED, ""), verb
        assert f"`rmqctl salvage {golden.store} --to NEW`" in done.err
    assert tree_state(golden.store) == before


def test_salvage_makes_a_plain_store_with_the_queue_offsets(golden: LogGolden, tmp_path: Path) -> None:
    done = run("salvage", golden.store, "--to", tmp_path / "new", "--json")
    report = done.objects[0]
    assert (done.code, report["salvaged"], report["renumbered"], report["strange_spans"]) == (0, _MESSAGES, 0, 0)
    same = run("diff", golden.store, tmp_path / "new", "--content", "--json").objects[0]
    assert (same["messages"]["same"], same["same"]) == (_MESSAGES, True)
    assert run("check", "-s", tmp_path / "new", "--full").code == exit_codes.OK


_FIELDS = {name: (offset, size) for name, _, offset, size in DLEDGER_ENTRY_HEAD.fields}


@pytest.mark.parametrize("field", [name for name in _FIELDS if name not in ("channel", "chain_crc", "body_crc")])
def test_a_flipped_bit_in_a_head_is_found_and_hides_no_message(store: Path, field: str) -> None:
    at = _entries(store)[7]
    offset, size = _FIELDS[field]
    byte = at + offset + size - 1
    _put(_data(store), byte, bytes([_data(store).read_bytes()[byte] ^ 2]))
    found = {code: row for code, row in _codes(store).items() if row["severity"] == "error"}
    expected = "RMQ-DLG-002" if field in ("entry_index", "term") else "RMQ-DLG-001"
    assert set(found) == {expected}
    # a term that rises is wrong only where the next one falls, which is the entry after it
    assert found[expected]["physical_offset"] in (at, _entries(store)[8] if field in ("entry_index", "term") else at)
    assert found[expected]["data_lost"] is False
    assert len(run("cat", "-s", store, "--json").objects) == _MESSAGES


def test_damage_in_a_frame_is_found_where_it_is(store: Path, tmp_path: Path) -> None:
    at = _entries(store)[7]
    _put(_data(store), at + _HEAD + 90, b"\xff\xff")
    found = {code: row for code, row in _codes(store).items() if row["severity"] == "error"}
    assert (set(found), found["RMQ-LOG-005"]["physical_offset"]) == ({"RMQ-LOG-005"}, at + _HEAD)
    done = run("cat", "-s", store, "--json")
    assert (done.code, len(done.objects)) == (exit_codes.DAMAGE_OR_NOTHING, _MESSAGES - 1)
    report = run("salvage", store, "--to", tmp_path / "new", "--json").objects[0]
    assert (report["salvaged"], report["strange_spans"]) == (_MESSAGES - 1, 1)


@pytest.mark.parametrize(
    ("path", "at", "data", "code"),
    [
        ("index", 5 * DLEDGER_INDEX_UNIT.size + 15, b"\x7f", "RMQ-DLG-003"),
        ("index", 0, None, "RMQ-DLG-004"),
        ("checkpoint", 0, b"committedIndex=x\n", "RMQ-DLG-005"),
        ("checkpoint", 0, b"committedIndex=420\n", "RMQ-DLG-006"),
        ("checkpoint", 0, b"committedIndex=300\n", "RMQ-DLG-007"),
        ("currterm", 0, b"currTerm=-1\n", "RMQ-DLG-005"),
    ],
)
def test_index_and_state_are_compared_with_the_entries(
    store: Path, path: str, at: int, data: bytes | None, code: str
) -> None:
    folder = store / "dledger-n0"
    if path == "index":
        file = folder / "index" / f"{0:020d}"
        with file.open("r+b") as opened:
            opened.truncate(file.stat().st_size - 32 * (data is None))
        _put(file, at, data or b"")
    else:
        (folder / path).write_bytes(data or b"")
        (folder / f"{path}.bak").unlink(missing_ok=True)
    assert code in _codes(store)


def _flat(store: Path, *, fast: bool) -> Iterator[tuple[Any, ...]]:
    with MessageStore.open(store) as opened:
        for record in walk_columns(opened.files.log) if fast else walk(opened.files.log):
            if isinstance(record, MessageColumns):
                yield from (("m", offset) for offset in record.physical_offset.tolist())
            else:
                kind = type(record).__name__
                yield ("m", record.physical_offset) if kind == "StoredMessage" else (kind, *record[:2])


@pytest.mark.parametrize("seed", range(6))
def test_fast_and_plain_walk_agree_on_damage(store: Path, seed: int) -> None:
    chance, size = random.Random(seed), _data(store).stat().st_size
    entries = _entries(store)
    for _ in range(8):
        at = chance.choice(entries) + chance.randrange(_HEAD + 90) if chance.random() < 0.7 else chance.randrange(size)
        _put(_data(store), min(at, size - 9), chance.choice([b"\0", b"\xff", chance.randbytes(8)]))
    assert list(_flat(store, fast=True)) == list(_flat(store, fast=False))
    assert run("check", "-s", store, "--full").code == exit_codes.DAMAGE_OR_NOTHING


def test_an_entry_without_a_message_is_passed_over(store: Path) -> None:
    end = 273251
    head = struct.pack(">iiqqqiiii", 1, _HEAD, _MESSAGES, 0, end, 0, 0, 0, 0)
    _put(_data(store, 1), end - _FILE_SIZE, head)
    assert len(run("cat", "-s", store, "--json").objects) == _MESSAGES
    assert [code for code, row in _codes(store).items() if row["severity"] == "error"] == []


def test_a_folder_from_before_the_commitlog_is_a_leftover(golden: LogGolden, tmp_path: Path) -> None:
    """A DLedger log that begins before the end of a commitlog is not what follows it; one at its end is."""
    plain = tmp_path / "plain"
    run("salvage", golden.store, "--to", plain)
    shutil.copytree(golden.store / "dledger-n0" / "data", plain / "dledger-n0" / "data")
    assert "RMQ-FILE-050" not in _codes(plain)
    assert len(run("cat", "-s", plain, "--json").objects) == _MESSAGES


@pytest.mark.parametrize("split_size", [3_000, 70_000])
def test_splits_hold_each_message_once(golden: LogGolden, split_size: int) -> None:
    with MessageStore.open(golden.store) as opened:
        found: list[int] = []
        for split in plan_splits(opened.files, split_size):
            with open_split(split) as files:
                for record in split_columns(files, split):
                    found += record.physical_offset.tolist() if isinstance(record, MessageColumns) else []
        assert found == [offset for kind, offset, *_ in _flat(golden.store, fast=False) if kind == "m"]


def test_dump_shows_heads_frames_index_and_state(store: Path) -> None:
    at = _entries(store)[3]
    _put(_data(store), at + 4, b"\x7f")
    _put(store / "dledger-n0" / "index" / f"{0:020d}", 2 * DLEDGER_INDEX_UNIT.size + 23, b"\x07")
    items = run("dump", _data(store), "--json", "-n", 9).objects
    assert [item["kind"] for item in items] == [*(["entry head", "message"] * 3), "damage", "message", "entry head"]
    assert (items[6]["offset"], items[6]["size"]) == (at, _HEAD)
    units = run("dump", store / "dledger-n0" / "index" / f"{0:020d}", "--json", "-n", 4).objects
    assert [unit["damage"] is not None for unit in units] == [False, False, True, False]
    assert "currTerm=0" in run("dump", store / "dledger-n0" / "currterm").out


def test_it_can_be_followed(golden: LogGolden) -> None:
    with MessageStore.open(golden.store) as opened:
        follower = LogFollower(opened.files.log, Criteria(), 0, UNHEARD)
        taken: list[StoredMessage] = []
        while found := follower.new(lambda _: None):
            taken += found
        assert len(taken) == _MESSAGES


def test_lost_messages_are_to_be_had_of_other_members(store: Path) -> None:
    """No filler is written into a DLedger log: neither verb names --bridge."""
    _put(_data(store), 100_000, b"\xff" * 20)
    for verb in (["check"], ["recover", "--dry-run"]):
        done = run(*verb, "-s", store)
        told = " ".join((done.out + done.err).split())
        assert (done.code, told.count("Another member of the DLedger group has it")) == (1, 1)
        assert "--bridge" not in told


def test_other_members_come_before_a_recovery(store: Path) -> None:
    """Entries that DLedger would cut: this member alone is not to be recovered first."""
    dumped = run("dump", _data(store), "--json", "-n", 201).objects
    _put(_data(store), [one["offset"] for one in dumped if one["kind"] == "entry head"][-1] + 8, bytes(8))
    found = run("doctor", "-s", store, "--json").objects[0]
    assert (found["state"], found["next"]) == ("damaged", f"rmqctl check -s {store}")
    assert "next:" not in run("check", "-s", store).out


@pytest.mark.parametrize("name", ["v55-dledger", "v55-dledger-crash"])
def test_rebuild_makes_the_queues_that_the_broker_made(name: str, tmp_path: Path) -> None:
    store = log_golden(name, tmp_path).store
    before = tree_state(store)
    units = {path: path.read_bytes() for path in sorted((store / "consumequeue").rglob("0*")) if path.is_file()}
    assert run("rebuild", "-s", store, "-y").code == exit_codes.OK
    assert {path: path.read_bytes() for path in units} == units
    assert run("check", "-s", store, "--full").code == exit_codes.OK
    assert run("undo", "-s", store, "-y").code == exit_codes.OK
    assert tree_state(store) == before


def test_rebuild_is_refused_where_dledger_would_cut_messages(store: Path) -> None:
    """What another member has does not get into queues that a start of this one would cut."""
    dumped = run("dump", _data(store), "--json", "-n", 201).objects
    _put(_data(store), [one["offset"] for one in dumped if one["kind"] == "entry head"][-1] + 8, bytes(8))
    done = run("rebuild", "-s", store, "-y")
    assert (done.code, "another member of the group has them" in done.err) == (exit_codes.REFUSED, True)
