"""Crash states: power cuts at every moment of every workload, with anything lost that no fsync had covered.

A workload runs once and is recorded; its cases are states of that one recording. Where threads are at work at once the
recording is another one each time, so that of a case that fails is kept: the command that runs it again begins with it.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from rmqctl.store.files.reading import is_directory
from tests.processes import ROOT
from tests.proof.crash.cuts import History, cut_of, files_at, put_on_disk, told
from tests.proof.crash.recording import DONE, recorded
from tests.proof.crash.state import Kept, State, in_log
from tests.proof.crash.workloads import WORKLOADS, Workload
from tests.proof.executed import cache_folder
from tests.proof.proving import Case
from tests.store.journal.between_steps import cheaply

_LEAST_CASES = 16
"""A recording costs as much as some cases, so a short run has fewer workloads."""

STORE = "s"


class Recorded(NamedTuple):
    """What a workload did. `messages`: those in the log before the first step and after each. `begins`: the number of
    the event at which each step begins, and of that at which the last one has returned. `place`: where it was recorded,
    which a journal elsewhere says."""

    history: History
    messages: list[list[Kept]]
    begins: list[int]
    place: Path


def cases(seed: int, count: int) -> Iterator[Case]:
    """About `count` cases, spread over the workloads."""
    return cases_of(list(WORKLOADS)[: max(1, count // _LEAST_CASES)], seed, count, cache_folder() / "crash")


def cases_of(names: list[str], seed: int, count: int, kept: Path | None = None) -> Iterator[Case]:
    """The same of these workloads alone. `kept`: a folder for the recordings of cases that fail, until they pass or the
    product is another one."""
    draws = -(-count // len(names))
    for name in names:
        runs: list[Recorded] = []
        for number in range(draws):
            text = f"{seed}/{name}/{number}"
            digest = hashlib.sha256(f"{text}/{draws}/{_product()}".encode()).hexdigest()
            file = None if kept is None else kept / f"{digest}.pickle"
            yield f"{name} {number}", partial(_try_kept, file, name, runs, number, draws, text)


@functools.cache
def _product() -> str:
    """Which product was recorded: what another one did is no case of this one."""
    digest = hashlib.sha256()
    for path in sorted(path for room in ("formats", "store") for path in (ROOT / room).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _try_kept(
    file: Path | None, name: str, runs: list[Recorded], number: int, draws: int, seed: str, folder: Path
) -> None:
    """The case with the recording it failed with before, if there is one; what fails is kept, until it passes."""
    if file is not None and file.exists():
        runs = [pickle.loads(file.read_bytes())]
    try:
        _try(name, runs, number, draws, seed, folder)
    except Exception:
        if file is not None and runs:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(pickle.dumps(runs[0]))
        raise
    if file is not None:
        file.unlink(missing_ok=True)


def _try(name: str, runs: list[Recorded], number: int, draws: int, seed: str, folder: Path) -> None:
    """Record the work if no case before has, then put one state on disk and look at it."""
    workload = WORKLOADS[name]
    if not runs:
        runs.append(record(workload, folder / "recorded"))
    run, random = runs[0], Random(seed)
    cut = cut_of(run.history, number, draws, random)
    run.place.mkdir(parents=True)
    put_on_disk(run.history, cut, run.place)
    step = min(sum(begin < cut.after for begin in run.begins[1:]), len(workload.steps) - 1)
    begin, end = run.begins[step : step + 2]
    state = State(
        run.place / STORE,
        random,
        workload.config,
        run.messages[step],
        run.messages[step + 1],
        files_at(run.history, begin),
        files_at(run.history, end),
        run.history.notes(begin, cut.after),
        cut.after > end,
    )
    try:
        with cheaply():
            workload.steps[step].check(state)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}; {told(run.history, cut)}") from error
    finally:
        shutil.rmtree(run.place)


def record(workload: Workload, folder: Path) -> Recorded:
    """Run the steps below the folder."""
    folder.mkdir()
    root = folder / STORE
    workload.prepare(root)
    messages = [_messages(root, workload)]
    with recorded(folder) as recording:
        begins = [recording.begun]
        for step in workload.steps:
            step.run(root, recording.note)
            recording.note(DONE)
            begins.append(len(recording.events) - 1)
            messages.append(_messages(root, workload))
    shutil.rmtree(folder)
    return Recorded(History(recording), messages, begins, folder)


def _messages(root: Path, workload: Workload) -> list[Kept]:
    return in_log(root, workload.config) if is_directory(root) else []
