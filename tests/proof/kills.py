"""Kills: a process is killed at the Nth change of a file that it makes, in every verb that writes.

What must hold: what was acknowledged, noted outside of the store, is there; what the kill leaves is ended by undo,
resume or recover, and the same command again ends well. A kill takes nothing that was written, unlike a power cut.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests import processes
from tests.proof.going_on import Way, go_on, required
from tests.proof.proving import Case
from tests.proof.stores import Bases, bases
from tests.proof.works import WORKS, Told

_ALL = 5_000
KILLED = -9


class Killer:
    """A process of one thread that forks another for every work, which is killed. A context manager."""

    def __init__(self, mutant: str = "") -> None:
        """`mutant`: one of tests/proof/mutants.py, of which the works suffer."""
        self._process: subprocess.Popen[str] = processes.start(
            [sys.executable, "-m", "tests.proof.killed", mutant],
            seconds=20_000,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(60)

    def kill(self, name: str, place: Path, at: int, *, torn: bool) -> tuple[Told, int, list[bytes]]:
        """Do a work below `place` in a process that is killed at its change `at`, from 1, of a write with `torn` half
        is done; 0 for never. How it ended, how many changes it made, and what was acknowledged until then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        notes = place / "noted"
        order = {"name": name, "place": str(place), "at": at, "torn": torn, "notes": str(notes)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        noted = notes.read_text(encoding="ascii").splitlines() if notes.exists() else []
        return Told(answer["code"], answer["text"]), answer["changes"], [bytes.fromhex(line) for line in noted]


def cases(seed: int, count: int) -> Iterator[Case]:
    """A sample; from 5,000 on every change of every work, with and without half of a write."""
    with bases() as stores, Killer() as killer:
        yield from _every(stores, killer, seed) if count >= _ALL else _sample(stores, killer, seed, count)


def _sample(stores: Bases, killer: Killer, seed: int, count: int) -> Iterator[Case]:
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        name = chance.choice(list(WORKS))
        share, torn = chance.random(), chance.random() < 0.4
        way: Way = chance.choice(("undo", "resume"))
        label = f"{number} {name} killed at {share:.3f}{', torn' if torn else ''}, {way}"
        at = 1 + int(share * changes_of(stores, killer, name))
        yield label, partial(killed, stores, killer, name, at, torn=torn, way=way)


def _every(stores: Bases, killer: Killer, seed: int) -> Iterator[Case]:
    for name in WORKS:
        for at in range(1, changes_of(stores, killer, name) + 1):
            way: Way = random.Random(f"{seed} {name} {at}").choice(("undo", "resume"))
            for torn in (False, True):
                label = f"{name} killed at change {at}{', torn' if torn else ''}, {way}"
                yield label, partial(killed, stores, killer, name, at, torn=torn, way=way)


_changes: dict[str, int] = {}


def changes_of(stores: Bases, killer: Killer, name: str) -> int:
    """How many changes of files a work makes."""
    if name not in _changes:
        with tempfile.TemporaryDirectory(prefix="rmqctl-counted-") as folder:
            stores.copy(WORKS[name].base, Path(folder))
            told, _changes[name], _ = killer.kill(name, Path(folder), 0, torn=False)
        assert told.code == 0, told
    return _changes[name]


def killed(stores: Bases, killer: Killer, name: str, at: int, place: Path, *, torn: bool, way: Way) -> bool:
    """Kill a work once, then go on as its user would: whether it was killed."""
    work = WORKS[name]
    base = stores.copy(work.base, place)
    told, _, noted = killer.kill(name, place, at, torn=torn)
    assert told.code in (0, KILLED), told
    expected = {*required(name, place, noted), *(stores.held(work.base) if work.keeps else [])}
    go_on(name, place, base, told, way, expected)
    return told.code == KILLED
