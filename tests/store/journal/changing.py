"""A small store and a plan that changes everything in it, for tests of the journal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.journal.journal import Journal
from rmqctl.store.journal.plan import ClearRange, CreateFile, Install, MoveAway, Plan, Resize, WriteRange

MOMENT = 1_700_000_000_123_456_789
"""The time of every change where tests compare outcomes with their times."""


def fill(path: Path, data: bytes) -> None:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def small_store(folder: Path) -> StoreLayout:
    """A store with a bit of everything, and times that nothing else has."""
    root = folder / "store"
    fill(root / "commitlog" / "0", bytes(range(256)) * 40)
    with (root / "commitlog" / "1").open("wb") as file:  # data, a hole, data
        file.write(b"head" * 100)
        file.seek(300_000)
        file.write(b"tail" * 100)
    fill(root / "queues" / "T" / "0" / "a", b"a" * 3000)
    fill(root / "queues" / "T" / "1" / "b", b"b" * 3000)
    fill(root / "queues" / "U" / "0" / "c", b"c" * 100)
    fill(root / "index" / "one", b"1" * 500)
    fill(root / "checkpoint", b"k" * 100)
    fill(root / "abort", b"")
    fill(root / "lock", b"lock")
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(10**18 + number, 10**18 + 10**9 * number + 7))
    os.utime(root, ns=(10**18, 10**18))
    return StoreLayout(root, (root / "commitlog",))


def plan_of_everything(layout: StoreLayout, journal: Journal) -> Plan:
    """Every kind of operation, some of them on the same bytes; the journal holds what it installs."""
    root = layout.root
    staged_file, staged_folder = journal.staging / "one", journal.staging / "folder"
    fill(staged_file, b"new index")
    fill(journal.staging / "two", b"second index")
    fill(staged_folder / "0" / "unit", b"units")
    return Plan(
        [
            WriteRange(root / "commitlog" / "0", 100, b"X" * 50),
            WriteRange(root / "commitlog" / "0", 120, b"Y" * 50),
            ClearRange(root / "commitlog" / "0", 90, 2000),
            WriteRange(root / "commitlog" / "1", 390, b"into the hole" * 9),
            ClearRange(root / "commitlog" / "1", 200, 300_100),
            Resize(root / "checkpoint", 4096),
            WriteRange(root / "checkpoint", 0, b"C" * 4096),
            Resize(root / "queues" / "T" / "0" / "a", 1000),
            ClearRange(root / "queues" / "T" / "0" / "a", 500, 500),
            CreateFile(root / "queues" / "V" / "3" / "d", 2000),
            WriteRange(root / "queues" / "V" / "3" / "d", 20, b"unit" * 5),
            MoveAway(root / "queues" / "U"),
            MoveAway(root / "queues" / "T" / "1" / "b"),
            Install(staged_file, root / "index" / "one"),
            Install(journal.staging / "two", root / "index" / "two"),
            Install(staged_folder, root / "batch" / "W"),
            MoveAway(root / "abort"),
        ],
        {root / "commitlog" / "1": 1_234_567_890_123_456_789},
    )


def expected(before: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the store when the plan is carried out."""
    after = dict(before)
    log = bytearray(before["commitlog/0"])
    log[90:2090] = bytes(2000)
    after["commitlog/0"] = bytes(log)
    second = bytearray(before["commitlog/1"])
    second[200:300_300] = bytes(300_100)
    after["commitlog/1"] = bytes(second)
    after["checkpoint"] = b"C" * 4096
    after["queues/T/0/a"] = b"a" * 500 + bytes(500)
    after["queues/V/3/d"] = bytes(20) + b"unit" * 5 + bytes(1960)
    after["index/one"], after["index/two"] = b"new index", b"second index"
    after["batch/W/0/unit"] = b"units"
    for gone in ("queues/U/0/c", "queues/T/1/b", "abort"):
        del after[gone]
    return after


def content(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def start(folder: Path) -> tuple[StoreLayout, Callable[[], Journal]]:
    """A store and its change, prepared up to where the journal takes over."""
    layout = small_store(folder)
    journal = Journal(layout, "test")
    plan = plan_of_everything(layout, journal)
    for path in (*journal.staging.rglob("*"), journal.staging):
        os.utime(path, ns=(MOMENT, MOMENT - 5))

    def work() -> Journal:
        journal.apply(plan)
        return journal

    return layout, work


def copied(folder: Path, target: Path) -> StoreLayout:
    """The store with its journals, times and all, elsewhere."""
    shutil.copytree(folder, target, symlinks=True)
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        copy = target / path.relative_to(folder)
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    return StoreLayout(target / "store", (target / "store" / "commitlog",))
