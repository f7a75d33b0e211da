"""A nearly full disk with a torn store: what says so, and the two ways out: `--journal DIR` and `clean --crashed`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.output.times import now_ms
from tests import goldens
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with the crashed golden, its first files expired, and not a page left."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, timeout=20, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode(errors='replace').strip()}")
    try:
        store = goldens.golden("crash", path)
        for number, file in enumerate(sorted((store / "commitlog").iterdir())):
            stamp = now_ms() * 1_000_000 - (100 if number < 3 else 1) * HOUR_NS
            os.utime(file, ns=(stamp, stamp))
        (store / "lock").touch()  # as every broker leaves it
        with (path / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)) == 4096:
                    pass
            except OSError:
                pass
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], timeout=20, check=True)


def free(disk: Path, pages: int) -> None:
    os.truncate(disk / "filler", (disk / "filler").stat().st_size - pages * 4096)


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}


def test_a_full_disk_names_the_ways_out_and_clean_needs_no_room(full_disk: Path) -> None:
    store = full_disk / "crash"
    before = tree_state(store)
    done = run("recover", "-s", store)
    assert done.code == 6
    assert "--journal" in done.err
    assert "clean --crashed" in done.err
    assert same(before, tree_state(store))
    refused = run("clean", "-s", store, "--yes")
    assert (refused.code, "rmqctl clean --crashed" in refused.err) == (5, True)
    done = run("clean", "-s", store, "--crashed", "--older-than", "72h", "--yes", "--json")
    assert done.code == 0
    [answer] = done.objects
    assert [Path(row["file"]).name for row in answer["removed"]] == [f"{262144 * number:020d}" for number in range(3)]
    assert not any(row["kind"] != "commitlog" for row in answer["kept"])
    os.remove(full_disk / "filler")  # what recovery itself writes needs more than three small files
    assert run("recover", "-s", store).code == 0
    assert run("check", "-s", store).code == 0
    assert run("clean", "-s", store, "--yes").code == 0


def test_a_journal_on_another_disk_leaves_room_for_the_store(full_disk: Path, tmp_path: Path) -> None:
    """What is cleared of one file of 256 KiB has no place on the disk, where 120 KiB are free."""
    store, other = full_disk / "crash", tmp_path / "other"
    other.mkdir()
    before = tree_state(store)
    at = run("cat", "-s", store, "--json", "-n", "9").objects[8]["physical_offset"]
    assert at < 50_000
    free(full_disk, 30)
    refused = run("truncate", "-s", store, "--at", at, "--yes")
    assert (refused.code, "--journal" in refused.err) == (6, True)
    assert same(before, tree_state(store))
    done = run("truncate", "-s", store, "--at", at, "--yes", "--journal", other, "--json")
    assert done.code == 0, done.err
    folder = Path(done.objects[0]["journal"])
    assert folder.parent == other / "crash.rmqctl"
    assert run("check", "-s", store).code == 0
    [change] = run("log", "-s", store, "--json").objects
    assert (change["state"], change["folder"], change["undoable"]) == ("applied", str(folder), True)
    assert run("undo", "-s", store).code == 0
    assert same(before, tree_state(store))


@pytest.mark.parametrize("verb", [("recover",), ("rebuild",), ("repair",), ("truncate", "--at", "262144", "--yes")])
def test_every_change_takes_it(golden_store: GoldenStore, tmp_path: Path, verb: tuple[str, ...]) -> None:
    store, other = golden_store("crash"), tmp_path / "other"
    other.mkdir()
    before = tree_state(store)
    done = run(verb[0], "-s", store, *verb[1:], "--journal", other, "--json")
    assert Path(done.objects[0]["journal"]).parent == other / "crash.rmqctl"
    other.rename(tmp_path / "away")
    assert "unfinished" not in run("info", "-s", store).err
    assert run("undo", "-s", store).code == 3
    (tmp_path / "away").rename(other)
    assert run("undo", "-s", store).code == 0
    assert same(before, tree_state(store))


def test_both_journal_flags_contradict_each_other(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    assert run("recover", "-s", store, "--no-journal", "--journal", tmp_path, "--yes").code == 2
    assert run("recover", "-s", store, "--journal", store / "commitlog").code == 5
    assert run("recover", "-s", store, "--journal", tmp_path / "nothing").code == 1
    assert same(before, tree_state(store))


def test_an_append_waits_for_a_journal_that_is_not_there(golden_store: GoldenStore, tmp_path: Path) -> None:
    store, other = golden_store("crash"), tmp_path / "other"
    other.mkdir()
    assert run("recover", "-s", store, "--journal", other).code == 0
    [pointer] = store.with_name("crash.rmqctl").iterdir()
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"begun": 1}))
    shutil.rmtree(other)
    before = tree_state(store)
    done = run("append", "-s", store, "-t", "TopicTest", "--body", "x")
    assert (done.code, str(other) in done.err, "--give-up" in done.err) == (3, True, True)
    assert same(before, tree_state(store))
    assert run("undo", "-s", store, "--give-up").code == 0
    assert run("recover", "-s", store).code == 0
    assert run("append", "-s", store, "-t", "TopicTest", "--body", "x").code == 0


def test_a_crashed_store_keeps_what_its_recovery_reads(golden_store: GoldenStore) -> None:
    """Without a checkpoint a recovery begins at the first file; and nothing but age counts."""
    store = golden_store("crash")
    (store / "checkpoint").unlink()
    before = tree_state(store)
    done = run("clean", "-s", store, "--crashed", "--older-than", "0s", "--yes", "--json")
    assert (done.code, done.objects[0]["removed"]) == (0, [])
    assert {row["reason"] for row in done.objects[0]["kept"]} >= {"still_used"}
    assert run("clean", "-s", store, "--crashed", "--at-once", "--yes").code == 2
    assert run("clean", "-s", store, "--crashed", "--scheduled", "--yes").code == 2
    assert same(before, tree_state(store))
