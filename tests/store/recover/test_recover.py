"""Recovery of every golden store, held against what the messages of RocketMQ's own truths imply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.checksums import key_hash
from rmqctl.formats.errors import RefusedError, StoreInUseError, UnsupportedError
from rmqctl.formats.properties import has_queue_slot, transaction_type
from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.lock import StoreLock
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.recover import RecoverReport, recover
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import GoldenStore, broker_conf, tree_state, truth
from tests.processes import start
from tests.quick import goldens_of

# what RocketMQ's own recovery makes of the log, where it is right about the log's end
CRASHED = {
    "crash": ("crash", 2135612),
    "crash-now": ("crash-now", 1310000),
    "checkpoint-future": ("crash", 2135612),
    "checkpoint-lost-abort": ("crash", 2135612),
    "cq-lost-abort": ("crash", 2135612),
    "crc-flip-old-abort": ("crash", 2135612),
    "index-lost-abort": ("crash", 2135612),
    "prealloc-last-abort": ("crash", 2135612),
    "torn-zero": ("crash", 2135296),
    "v4-crash": ("v4-crash", 2134705),
    "v4-checkpoint-lost-abort": ("v4-crash", 2134705),
    "v4-torn-garbage": ("v4-crash", 2134390),
}
CLEANLY_STOPPED = {
    "cq-lost": 2135612,
    "cq-short": 2135612,
    "cq-truncated": 2135612,
    "empty-last": 2135612,
    "index-garbage": 2135612,
    "index-lost": 2135612,
    "prealloc-last": 2135612,
    "short-last": 2135612,
    "tail-garbage-clean": 2135612,
    "torn-zero-clean": 2135296,
    "v4-cq-lost": 2134705,
    "v4-cq-truncated": 2134705,
    "v4-empty-last": 2134705,
}
# damage in a file that recovery checks, with this many good messages and this end
NEEDS_CUT = {
    "crc-flip-last": (25, 2106230),
    "crc-flip-last-abort": (25, 2106230),
    "crc-flip-third": (573, 1695806),
    "v4-crc-flip-last": (24, 2105616),
    "v4-crc-flip-last-abort": (24, 2105616),
}
LOG_GONE = ("log-gone", "log-gone-abort", "v4-log-gone")
UNTOUCHED = tuple(
    name
    for name in goldens.GOLDENS
    if not goldens.is_broken(name) and not goldens.is_crashed(name) and not name.startswith("rocksdb")
)


def run(store: Path, **options: Any) -> RecoverReport:
    name = store.name
    config = read_broker_conf(broker_conf(name, store.parent))
    with StoreFiles(store, config) as files:
        return recover(files, **options)


def opened(store: Path) -> StoreFiles:
    return StoreFiles(store, read_broker_conf(broker_conf(store.name, store.parent)))


def implied_units(name: str, end: int) -> dict[tuple[str, int], dict[int, tuple[int, int, int]]]:
    """Units that the messages of a truth imply, multi-dispatch aside: {queue: {slot: (offset, size, tags code)}}."""
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    for row in truth(name).messages:
        if row["phyOffset"] < end and has_queue_slot(row["sysFlag"]) and is_safe_topic(row["topic"]):
            unit = (row["phyOffset"], row["storeSize"], row["dispatchTagsCode"])
            queues.setdefault((row["topic"], row["queueId"]), {})[row["queueOffset"]] = unit
    return queues


def implied_index(name: str, end: int) -> set[tuple[int, int]]:
    """(key hash, physical offset) of every key of every message of a truth."""
    entries = set()
    for row in truth(name).messages:
        if row["phyOffset"] >= end or transaction_type(row["sysFlag"]) == 0xC:
            continue
        properties = row["properties"]
        keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        keys += [key for key in properties.get("KEYS", "").split(" ") if key]
        entries |= {(key_hash(row["topic"], key), row["phyOffset"]) for key in keys}
    return entries


def assert_complete(store: Path, base: str, end: int) -> None:
    with opened(store) as files:
        expected = implied_units(base, end)
        found = {
            (queue.topic, queue.queue_id): {
                unit.queue_offset: (unit.physical_offset, unit.size, unit.tags_code) for unit in queue.units(0)
            }
            for queue in files.queues.all()
            if queue.max_offset
        }
        assert found == expected
        entries = {(entry.key_hash, entry.physical_offset) for file in files.index.files for entry in file.entries()}
        assert entries == implied_index(base, end)
        for hashed, offset in sorted(entries)[::97]:
            chains = [entry for file in files.index.files for entry in file.chain(hashed)]
            assert offset in [entry.physical_offset for entry in chains]


@pytest.mark.parametrize("name", goldens_of(sorted(CRASHED), "torn-zero"))
def test_crashed_store_becomes_complete(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    base, end = CRASHED[name]
    report = run(store)
    assert not report.was_clean
    assert report.end_offset == end
    if name != "crc-flip-old-abort":  # one message of it stays unreadable, so it is not in what good messages imply
        assert_complete(store, base, end)
        assert report.damaged == []
    assert not (store / "abort").exists()
    with opened(store) as files:
        assert files.log.max_offset - files.log.file_size <= end < files.log.max_offset
        checkpoint = files.checkpoint()
        assert checkpoint is not None
        last = max(row["phyOffset"] for row in truth(base).messages if row["phyOffset"] < end)
        assert checkpoint.confirm_physical_offset == last
    again = run(store)
    assert again.was_clean
    assert again.operations == []


@pytest.mark.parametrize("name", goldens_of(sorted(CLEANLY_STOPPED), "cq-truncated", "torn-zero-clean"))
def test_cleanly_stopped_broken_store_becomes_complete(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    report = run(store)
    assert report.was_clean
    assert report.end_offset == CLEANLY_STOPPED[name]
    base = "v4-clean" if name.startswith("v4-") else "clean"
    assert_complete(store, base, report.end_offset)
    assert run(store).operations == []


@pytest.mark.parametrize("name", goldens_of(UNTOUCHED))
def test_whole_store_stays_as_it_is(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    before = tree_state(store)
    report = run(store)
    assert report.operations == []
    assert report.journal is None
    after = tree_state(store)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    # taking the broker's lock creates its file where the store has none
    assert changed <= {".", "lock"}
    assert not store.with_name(name + ".rmqctl").exists()


@pytest.mark.parametrize("name", sorted(NEEDS_CUT))
def test_damage_with_good_messages_behind_needs_a_decision(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    behind, end = NEEDS_CUT[name]
    before = tree_state(store)
    with pytest.raises(RefusedError) as refused:
        run(store)
    assert f"{behind} good messages" in refused.value.message
    assert refused.value.physical_offset == end
    assert "--cut" in (refused.value.hint or "")
    assert {path: state for path, state in tree_state(store).items() if path not in (".", "lock")} == {
        path: state for path, state in before.items() if path not in (".", "lock")
    }
    report = run(store, cut=True)
    assert (report.messages_cut, report.end_offset) == (behind, end)
    base = ("v4-" if name.startswith("v4-") else "") + ("crash" if name.endswith("-abort") else "clean")
    assert_complete(store, base, end)
    assert run(store).operations == []


def test_cut_bytes_are_kept(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-last")
    log = store / "commitlog" / "00000000000002097152"
    original = log.read_bytes()
    report = run(store, cut=True)
    begin = 2106230 - 2097152
    assert not any(log.read_bytes()[begin:])
    assert report.journal is not None
    journal = json.loads((Path(report.journal) / "journal.json").read_text())
    kept = (Path(report.journal) / "before.bin").read_bytes()
    [clear] = [
        entry
        for entry in journal["operations"]
        if entry["kind"] == "ClearRange" and entry["path"] == f"commitlog/{log.name}"
    ]
    restored = bytearray(log.read_bytes())
    for offset, at, length in clear["before"]:
        restored[offset : offset + length] = kept[at : at + length]
    assert bytes(restored) == original
    assert report.truncated_bytes == len(original[begin:].rstrip(b"\0"))


@pytest.mark.parametrize("name", ["gap", "v4-gap", "crc-flip-old", "v4-crc-flip-old"])
def test_damage_where_no_broker_looks_is_left_and_named(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    before = tree_state(store)
    report = run(store)
    assert report.operations == []
    assert len(report.damaged) == 1
    assert report.damaged[0]["reason"] == ("gap" if "gap" in name else "body_crc")
    after = tree_state(store)
    assert {path for path in before if before[path] != after.get(path)} <= {".", "lock"}


@pytest.mark.parametrize("name", ["gap", "crc-flip-old"])
def test_full_refuses_old_damage_too(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    with pytest.raises(RefusedError, match="good messages"):
        run(store, full=True)
    report = run(store, full=True, cut=True)
    assert report.end_offset == {"gap": 1048576, "crc-flip-old": 402516}[name]
    assert_complete(store, "clean", report.end_offset)


@pytest.mark.parametrize("name", LOG_GONE)
def test_lost_commitlog_needs_a_decision(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    before = {path: state for path, state in tree_state(store).items() if path.startswith("consumequeue")}
    with pytest.raises(RefusedError, match="no commitlog file"):
        run(store)
    assert {path: state for path, state in tree_state(store).items() if path.startswith("consumequeue")} == before
    report = run(store, cut=True)
    assert report.journal is not None
    assert (report.was_clean, report.units_added) == (name != "log-gone-abort", 0)
    kept = {path.name for path in (Path(report.journal) / "moved").rglob("*") if path.is_file()}
    assert "00000000000000000000" in kept
    assert not [path for path in (store / "consumequeue").rglob("*") if path.is_file()]


def test_stray_file_is_named_and_nothing_changes(golden_store: GoldenStore) -> None:
    store = golden_store("stray-file")
    with pytest.raises(RefusedError, match="does not belong into the commitlog") as refused:
        run(store, cut=True)
    assert refused.value.file is not None
    assert refused.value.file.endswith("notes.txt")


def test_short_file_in_the_middle(golden_store: GoldenStore) -> None:
    store = golden_store("short-middle")
    with pytest.raises(RefusedError, match="150000 bytes instead of 262144"):
        run(store)
    report = run(store, full=True, cut=True)
    # 774 messages of the files before and of the good part of the short one
    assert (report.end_offset, report.messages) == (667058, 774)
    assert (store / "commitlog" / "00000000000000524288").stat().st_size == 262144
    assert_complete(store, "clean", 667058)


def test_rocksdb_queues_are_named(golden_store: GoldenStore) -> None:
    with pytest.raises(UnsupportedError, match="RocksDB"):
        run(golden_store("rocksdb"))


@pytest.mark.parametrize("name", goldens_of(goldens.GOLDENS))
def test_dry_run_changes_nothing(golden_store: GoldenStore, name: str) -> None:
    store = golden_store(name)
    before = tree_state(store.parent)
    conf = broker_conf(name, store.parent)
    before[conf.name] = tree_state(store.parent)[conf.name]
    before["."] = tree_state(store.parent)["."]
    try:
        with StoreFiles(store, read_broker_conf(conf)) as files:
            recover(files, change=ChangeOptions(dry_run=True))
    except (RefusedError, UnsupportedError):
        pass
    assert tree_state(store.parent) == before


def test_dry_run_says_what_recovery_does(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    planned = run(store, change=ChangeOptions(dry_run=True))
    done = run(store)
    for name in ("end_offset", "queues_changed", "units_added", "units_removed", "index_files_rebuilt", "messages"):
        assert getattr(planned, name) == getattr(done, name), name
    assert planned.journal is None


def test_topics_that_cannot_be_directories_do_not_stop_it(golden_store: GoldenStore) -> None:
    report = run(golden_store("longtopic-toolong"))
    assert report.unplaceable_messages == 8
    assert report.messages == 28


def test_store_in_use_is_left_alone(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    # the lock is per process: another one has to hold it
    import subprocess
    import sys

    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2]); from rmqctl.store.files.lock import StoreLock; "
        "lock = StoreLock(pathlib.Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    root = Path(__file__).resolve().parents[3]
    holder = start(
        [sys.executable, "-c", code, str(store / "lock"), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = tree_state(store)
        with pytest.raises(StoreInUseError):
            run(store)
        assert tree_state(store) == before
    finally:
        holder.communicate("")
    StoreLock(store / "lock").release()
    assert run(store).end_offset == 2135612


def test_as_a_library(golden_store: GoldenStore) -> None:
    from rmqctl.store.clean.options import CleanOptions
    from rmqctl.store.message_store import MessageStore

    store = golden_store("crash")
    config = read_broker_conf(broker_conf("crash", store.parent))
    with MessageStore.open(store, "r", config) as opened:
        assert opened.recover(change=ChangeOptions(dry_run=True)).units_added == 400
        assert opened.recover().units_added == 400
        # the objects describe the store as it is now
        assert opened.get("BigQueues", 11, 0).messages
        assert opened.rebuild(index=False).units == 2500
        # a golden is older than what a broker keeps
        assert opened.clean(CleanOptions(), change=ChangeOptions(dry_run=True)).removed
        now = opened.last_messages(1)[0].store_timestamp
        assert opened.clean(CleanOptions(), now=now, change=ChangeOptions(dry_run=True)).removed == []
    with MessageStore.open(store, "rw", config) as opened, pytest.raises(RefusedError, match="open for writing"):
        opened.recover()
