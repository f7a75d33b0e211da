"""Crash states: power cuts at every moment of every workload, with anything lost that no fsync had covered.

A workload runs once and is recorded; its cases are states of that one recording.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from rmqctl.store.files.presence import is_directory
from tests.proof.crash.cuts import History, cut_of, put_on_disk, told
from tests.proof.crash.recording import recorded
from tests.proof.crash.state import Kept, State, in_log
from tests.proof.crash.workloads import WORKLOADS, Workload
from tests.proof.proving import Case

_LEAST_CASES = 16
"""A recording costs as much as some cases, so a short run has fewer workloads."""

STORE = "s"


class Recorded(NamedTuple):
    """What a workload did, and the messages in the log before it and after."""

    history: History
    before: list[Kept]
    after: list[Kept]


def cases(seed: int, count: int) -> Iterator[Case]:
    """About `count` cases, spread over the workloads."""
    chosen = list(WORKLOADS)[: max(1, count // _LEAST_CASES)]
    return cases_of(chosen, seed, count)


def cases_of(names: list[str], seed: int, count: int) -> Iterator[Case]:
    """The same of these workloads alone."""
    for name in names:
        draws = -(-count // len(names))
        runs: list[Recorded] = []
        for number in range(draws):
            yield f"{name} {number}", partial(_try, WORKLOADS[name], runs, number, draws, f"{seed}/{name}/{number}")


def _try(workload: Workload, runs: list[Recorded], number: int, draws: int, seed: str, folder: Path) -> None:
    """Record the work if no case before has, then put one state on disk and look at it."""
    if not runs:
        runs.append(record(workload, folder / "recorded"))
    run, random = runs[0], Random(seed)
    cut = cut_of(run.history, number, draws, random)
    place = folder / "state"
    place.mkdir()
    put_on_disk(run.history, cut, place)
    state = State(place / STORE, run.history, cut, random, run.before, run.after, workload.config)
    try:
        workload.check(state)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}; {told(run.history, cut)}") from error


def record(workload: Workload, folder: Path) -> Recorded:
    """Run the work below the folder."""
    folder.mkdir()
    root = folder / STORE
    workload.prepare(root)
    before = _messages(root, workload)
    with recorded(folder) as recording:
        workload.work(root, recording.note)
    run = Recorded(History(recording), before, _messages(root, workload))
    shutil.rmtree(folder)
    return run


def _messages(root: Path, workload: Workload) -> list[Kept]:
    return in_log(root, workload.config) if is_directory(root) else []
