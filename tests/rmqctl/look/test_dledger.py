"""A store whose commitlog is a DLedger log: named by every verb, called empty or damaged by none, changed by none."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.goldens import tree_state
from tests.rmqctl.looking import run

_HEADER = struct.Struct(">iiqqqiiii")
_CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=50, max_index_num=200
)
_LATER = 48  # the header of an entry, which lies before each frame


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten messages, each in an entry of dledger-n0/data; queues and index lead to the frames."""
    plain, made = tmp_path / "plain", tmp_path / "store"
    with MessageStore.open(plain, "rw", _CONFIG, create=True) as opened:
        for number in range(10):
            opened.put(Message(topic="Orders", body=b"body", properties={"KEYS": f"k{number}"}))
    shutil.copytree(plain, made)
    log = (plain / "commitlog" / f"{0:020d}").read_bytes()
    entries, units, place = b"", b"", 0
    for index in range(10):
        size = struct.unpack_from(">i", log, place)[0]
        at = len(entries)
        frame = bytearray(log[place : place + size])
        struct.pack_into(">q", frame, 28, at + _LATER)
        entries += _HEADER.pack(1, _LATER + size, index, 1, at, 0, 0, 0, size) + frame
        units += struct.pack(">qiq", at + _LATER, size, 0)
        place += size
    shutil.rmtree(made / "commitlog")
    (made / "dledger-n0" / "data").mkdir(parents=True)
    (made / "dledger-n0" / "data" / f"{0:020d}").write_bytes(entries.ljust(65536, b"\0"))
    (made / "consumequeue" / "Orders" / "0" / f"{0:020d}").write_bytes(units.ljust(2000, b"\0"))
    return made


def test_check_and_info_name_it(store: Path) -> None:
    done = run("check", "-s", store, "--json")
    assert done.code == exit_codes.OK
    assert [row["code"] for row in done.objects if "code" in row] == ["RMQ-FILE-050"]
    told = run("check", "-s", store).out
    assert told.startswith("Nothing is wrong in the part that was checked; 1 notice.")
    assert "--cut" not in told
    assert "lost" not in told
    assert "the commitlog is a DLedger log (dledger-n0/data)" in run("info", "-s", store).out
    assert run("info", "-s", store, "--json").objects[0]["not_read"]


def test_a_store_with_nothing_beside_its_log_is_one(store: Path) -> None:
    """Queues and index were lost, or removed so that a broker makes them again."""
    for entry in store.iterdir():
        if not entry.name.startswith("dledger-"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    assert "the commitlog is a DLedger log (dledger-n0/data)" in run("info", "-s", store).out
    assert "RMQ-FILE-050" in run("check", "-s", store).out
    assert run("predict", "-s", store).code == exit_codes.REFUSED


def test_ls_counts_what_the_queues_lead_to(store: Path) -> None:
    done = run("ls", "-s", store, "--json")
    assert (done.code, done.objects[0]["messages"]) == (exit_codes.OK, 10)
    assert "DLedger" in done.err


@pytest.mark.parametrize(
    "verb",
    [
        ("recover",),
        ("recover", "--cut", "-y"),
        ("recover", "--dry-run"),
        ("rebuild",),
        ("rebuild", "--dry-run"),
        ("repair",),
        ("repair", "--dry-run"),
        ("truncate", "--at", "0"),
        ("clean", "-y"),
        ("clean", "--dry-run"),
        ("append", "-t", "Orders", "--body", "x"),
        ("offsets", "set", "-g", "g", "-t", "Orders", "-q", "0", "--offset", "0", "--new-group"),
        ("predict",),
        ("cat",),
        ("query", "-k", "k1"),
        ("where", "k1"),
        ("where", "Orders", "0", "1"),
        ("halves",),
        ("delays",),
        ("dlq", "list"),
        ("stats",),
        ("du",),
        ("serve",),
    ],
    ids=" ".join,
)
def test_verbs_that_need_the_messages_refuse_and_name_the_way_out(store: Path, verb: tuple[str, ...]) -> None:
    before = tree_state(store)
    done = run(*verb, "-s", store)
    assert done.code == exit_codes.REFUSED, done
    assert "DLedger log" in done.err
    assert f"rmqctl salvage {store}/dledger-n0/data --to NEW" in done.err
    assert "--cut" not in done.err
    assert done.out == ""
    assert tree_state(store) == before


def test_salvage_is_a_way_out(store: Path, tmp_path: Path) -> None:
    done = run("salvage", store / "dledger-n0" / "data", "--to", tmp_path / "new", "--json")
    assert done.objects[0]["salvaged"] == 10, done
    found = run("query", "-s", tmp_path / "new", "-k", "k7")
    assert found.code == exit_codes.OK


def test_a_group_is_judged_by_the_queues(store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{0:4}}}')
    done = run("groups", "-s", store, "--json")
    (row,) = done.objects
    assert (done.code, row["state"], row["lag"], row["lag_ms"]) == (exit_codes.OK, "behind", 6, None)


def test_a_folder_from_before_the_commitlog_is_a_leftover(store: Path, tmp_path: Path) -> None:
    """A DLedger log that begins before the end of a commitlog is not what follows it."""
    plain = tmp_path / "plain"
    shutil.copytree(store / "dledger-n0", plain / "dledger-n0")
    assert run("cat", "-s", plain, "-n", 1).code == exit_codes.OK
    assert "RMQ-FILE-050" not in run("check", "-s", plain).out


def test_a_migrated_store_goes_on_in_the_dledger_log(store: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "dledger-n0" / "data").mkdir(parents=True)
    data = (store / "dledger-n0" / "data" / f"{0:020d}").read_bytes()
    (plain / "dledger-n0" / "data" / f"{65536:020d}").write_bytes(data)
    done = run("cat", "-s", plain, "-n", 1)
    assert done.code == exit_codes.OK
    assert "DLedger" in done.err
    assert run("recover", "-s", plain).code == exit_codes.REFUSED
    assert "RMQ-FILE-050" in run("check", "-s", plain).out
