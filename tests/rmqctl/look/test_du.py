"""`rmqctl du`."""

from __future__ import annotations

import contextlib
import csv
import io
import mmap
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import human_size
from rmqctl.store import MessageStore
from rmqctl.store.info import counts as log_numbers
from rmqctl.store.info.counts import KINDS, new_map
from rmqctl.store.options import Events
from tests import processes
from tests.goldens import GOLDENS, GoldenStore, is_broken, truth
from tests.opened import store_path
from tests.quick import goldens_of
from tests.rmqctl.looking import run


@pytest.mark.parametrize("name", goldens_of(name for name in GOLDENS if not is_broken(name) and name != "multipath"))
def test_topics_are_those_of_the_log(name: str) -> None:
    (row,) = run("du", "-s", store_path(name), "--json").objects
    sizes: Counter[str] = Counter()
    for message in truth(name).messages:
        sizes[message["topic"]] += message["storeSize"]
    with_messages = [topic for topic in row["topics"] if topic["messages"]]
    assert {topic["topic"]: topic["bytes"] for topic in with_messages} == dict(sizes)
    assert [topic["bytes"] for topic in row["topics"]] == sorted((t["bytes"] for t in row["topics"]), reverse=True)
    assert row["message_bytes"] == sum(sizes.values())
    assert sum(topic["share"] for topic in row["topics"]) == pytest.approx(1.0 if sizes else 0.0)


def test_the_parts_are_all_files_as_they_lie_on_the_disk(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    with (store / "commitlog" / "a-hole").open("wb") as file:
        file.truncate(1 << 30)
    (row,) = run("du", "-s", store, "--json").objects
    files = [path for path in store.rglob("*") if path.is_file()]
    assert row["total"]["files"] == len(files) == sum(part["files"] for part in row["parts"])
    assert row["total"]["bytes"] == sum(path.stat().st_size for path in files) > 1 << 30
    assert row["total"]["on_disk_bytes"] == sum(path.stat().st_blocks * 512 for path in files) < 1 << 30
    parts = {part["part"]: part["files"] for part in row["parts"]}
    for part, folder in (("commitlog", "commitlog"), ("consumequeue", "consumequeue"), ("index", "index")):
        assert parts[part] == len([path for path in (store / folder).rglob("*") if path.is_file()])
    assert sum(topic["queue_files"] for topic in row["topics"]) == parts["consumequeue"]


def test_quick_goes_by_the_queues(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, quick = (run("du", "-s", store_path("clean"), "--json", *more).objects[0] for more in ([], ["--quick"]))
    assert (quick["counted_from"], quick["damaged_bytes"]) == ("consumequeue", None)
    assert quick["topics"] == whole["topics"]
    of_rocksdb = run("du", "-s", store_path("rocksdb"), "--quick", "--json").objects[0]
    assert (of_rocksdb["counted_from"], of_rocksdb["messages"]) == ("consumequeue", 384)
    monkeypatch.setattr(log_numbers, "walk", None)  # the log is not walked
    with MessageStore.open(golden_store("clean")) as store:
        assert store.disk_usage(quick=True).messages == quick["messages"]


def test_a_log_on_another_disk_counts_once(tmp_path: Path, golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (before,) = run("du", "-s", store, "--json").objects
    os.rename(store / "commitlog", tmp_path / "elsewhere")
    (store / "commitlog").symlink_to(tmp_path / "elsewhere")
    (after,) = run("du", "-s", store, "--json").objects
    assert after["parts"] == before["parts"]


def test_damage_is_no_topics_and_is_said() -> None:
    done = run("du", "-s", store_path("gap"), "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert done.objects[0]["damaged_bytes"] == 262144
    assert "262144 bytes of the log are damaged" in done.err


def test_the_largest_topics_for_people_and_as_csv() -> None:
    lines = run("du", "-s", store_path("clean"), "-n", 2).out.splitlines()
    assert lines[1].startswith("OrderTopic ")
    assert "17.1%" in lines[1]
    assert "and 10 smaller topics" in lines
    assert lines[-1].startswith("total ")
    rows = list(csv.DictReader(io.StringIO(run("du", "-s", store_path("clean"), "--format", "csv").out)))
    assert (rows[0]["topic"], rows[0]["bytes"], len(rows)) == ("OrderTopic", "362518", 12)
    (row,) = run("du", "-s", store_path("clean"), "-t", "*Topic*", "--json").objects
    assert [topic["topic"] for topic in row["topics"]] == ["OrderTopic", "TopicTest"]
    assert run("du", "-s", store_path("clean"), "-t", "Nope").code == exit_codes.DAMAGE_OR_NOTHING


@pytest.mark.parametrize("name", ["gap", "crc-flip-third", "torn-zero", "prealloc-last", "first-gone"])
def test_columns_map_the_log_as_the_plain_walk_does(name: str) -> None:
    with MessageStore.open(store_path(name)) as store:
        maps = []
        for count in (log_numbers.plain_count_topics, log_numbers.columns_count_topics):
            maps.append(new_map(store.files))
            count(store.files.log, Events(), maps[-1].add)
    assert maps[0] == maps[1]
    found = maps[0]
    for kind in KINDS:
        assert getattr(found, kind) == sum(getattr(cell, kind) for cell in found.cells)
    assert sum(getattr(found, kind) for kind in KINDS) == found.end - found.begin
    assert found.expired_bytes == found.begin
    shown, _, _ = run("du", "-s", store_path(name), "--map").out.partition("kind ")
    assert ("!" in shown) == (found.damaged > 0)


def test_deleted_files_that_a_process_holds(golden_store: GoldenStore) -> None:
    """A broker that cannot destroy a file keeps its space, though no folder has the file any more."""
    store = golden_store("clean")
    first = sorted((store / "commitlog").iterdir())[0]
    assert run("du", "-s", store, "--quick", "--json").objects[0]["held"] == []
    with first.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ):
        first.unlink()
        done = run("du", "-s", store, "--quick", "--json")
        (held,) = done.objects[0]["held"]
        assert (held["process"], held["file"]) == (os.getpid(), os.path.realpath(first))
        assert held["bytes"] == os.fstat(opened.fileno()).st_blocks * 512
        told = run("du", "-s", store, "--quick").err
        assert f"process {os.getpid()} still holds 1 deleted file, {human_size(held['bytes'])} on the disk" in told
    assert run("du", "-s", store, "--quick", "--json").objects[0]["held"] == []


_HOLDER = """
import mmap, sys
mapped = open(sys.argv[1], "rb")
held = mmap.mmap(mapped.fileno(), 0, access=mmap.ACCESS_READ)
mapped.close()
opened = [open(path, "rb") for path in sys.argv[2:]]
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def _holding(mapped: Path, *opened: Path) -> Iterator[int]:
    """Yield the id of a process that has `mapped` mapped and `opened` open."""
    command: list[str | Path] = [sys.executable, "-c", _HOLDER, mapped, *opened]
    with processes.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.stdin.close()


def test_files_in_use_by_which_process(golden_store: GoldenStore) -> None:
    """Number 59 of the troubles: a file that is mapped, or open, keeps its space when it is removed."""
    store = golden_store("clean")
    first, second, *_ = sorted((store / "commitlog").iterdir())
    du = ("du", "-s", store, "--quick")
    assert run(*du, "--json").objects[0]["in_use"] == []
    with _holding(first, second) as pid:
        rows = {row["file"]: row for row in run(*du, "--json").objects[0]["in_use"]}
        assert [(rows[os.path.realpath(path)]["process"], path) for path in (first, second)] == [
            (pid, first),
            (pid, second),
        ]
        assert [rows[os.path.realpath(path)]["mapped"] for path in (first, second)] == [True, False]
        assert [rows[os.path.realpath(path)]["bytes"] for path in (first, second)] == [
            path.stat().st_blocks * 512 for path in (first, second)
        ]
        told = run(*du).err
        assert f"process {pid} (" in told
        assert "uses 2 files of the store, 1 of them mapped, 512.0 KiB on the disk" in told


def test_a_dry_run_of_clean_names_what_would_not_be_free(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    first, *others = sorted((store / "commitlog").iterdir())
    os.utime(first, (1_000_000_000, 1_000_000_000))
    for path in others:
        os.utime(path)
    clean = ("clean", "-s", store, "--dry-run")
    assert run(*clean, "--json").objects[0]["in_use"] == []
    with _holding(first, others[0]) as pid:
        (row,) = run(*clean, "--json").objects[0]["in_use"]
        assert (row["process"], row["file"], row["mapped"]) == (pid, os.path.realpath(first), True)
        told = run(*clean).err
        assert f"process {pid} (" in told
        assert "uses 1 file to be removed, 1 of them mapped" in told
        assert "it has to end first, or their space is not free" in told
        refused = run("clean", "-s", store, "--yes")
        assert (refused.code, f"process {pid} has this file open" in refused.err) == (exit_codes.IN_USE, True)
        assert first.exists()
