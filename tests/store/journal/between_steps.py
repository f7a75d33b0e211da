"""The rule of a change: whatever step of a command was its last, and whoever used the store then, nothing is lost.

`python -m tests.store.journal.between_steps FOLDER [VERB]…` tries every step with every outsider, for a proof by hand.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from rmqctl.store.files import lock
from rmqctl.store.journal.log import changes
from rmqctl.store.message_store import MessageStore
from tests.store.journal.commands import CONFIG, Kept, layout_of, messages, whole_queue
from tests.store.journal.outsiders import OUTSIDERS, way_out
from tests.store.journal.stops import Chosen, Stop, copied, stops, stops_of_process
from tests.store.journal.verbs import VERBS, Verb, acknowledged

_OTHERS = [name for name in OUTSIDERS if name not in ("broker", "cleaner")]
# who asks nobody comes more often than those who may be refused
TURNS = [name for place, other in enumerate(_OTHERS) for name in (("broker", "cleaner")[place % 3 == 2], other)]


class Case(NamedTuple):
    """A command that was stopped, who used the store then, and what the user would rather do. `root`: where the store
    is while it is tried. `owed`: what was stored before, but for what the command was asked to take away."""

    root: Path
    owed: frozenset[Kept]
    stop: Stop
    outsider: str
    prefers: str

    def __str__(self) -> str:
        return f"stopped before {self.stop.number} ({self.stop.change}), then {self.outsider}, rather {self.prefers}"


def cases(verb: str, folder: Path, step: int, first: int = 0) -> Iterator[Case]:
    """Each `step`th of all steps with all outsiders, from number `first` on: by turns with every outsider where `step`
    has no factor in common with the number of TURNS."""
    root = folder / "now" / "a store"

    def taken(state: int) -> list[str]:
        begin = state * len(TURNS)
        turns = [name for place, name in enumerate(TURNS, start=begin) if place % step == first % step]
        return list(dict.fromkeys(turns))

    with cheaply():
        work = VERBS[verb]
        work.prepare(root)
        begin, end = work.takes(root)
        owed = frozenset(one for one in messages(root) if not begin <= one.physical_offset < end)
        found = _stops(work, root, folder / "stops", lambda state, _change: bool(taken(state)))
    for stop in found:
        for name in taken(stop.state):
            prefers = "undo" if (stop.state + TURNS.index(name)) % 2 else "resume"
            yield Case(root, owed, stop, name, prefers)


def _stops(verb: Verb, root: Path, copies: Path, chosen: Chosen) -> list[Stop]:
    if verb.program:
        return stops_of_process(root.parent, copies, verb.program, root, chosen)
    return stops(root.parent, copies, lambda: verb.work(root), chosen)


@contextmanager
def cheaply() -> Iterator[None]:
    """Without what takes longer than all else and says nothing here: a look at the files of all processes, of which no
    other one has any of ours, and flushes, for a kill leaves what was written."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(lock, "users_of", return_value=[]))
        for flush in ("fsync", "fdatasync"):
            stack.enter_context(mock.patch.object(os, flush))
        yield


def restored(case: Case) -> Path:
    """Put what was there when the command was stopped into its place; returns where the store is."""
    copied(case.stop.copy, case.root.parent)
    return case.root


def tried(case: Case) -> list[str]:
    """Go through a case; returns the commands that were needed until the store took messages again. AssertionError
    where a message is lost, or at a dead end."""
    root = restored(case)
    owed = case.owed | acknowledged(root)
    with cheaply():
        use = OUTSIDERS[case.outsider](root)
        done = way_out(root, case.prefers)
        left = messages(root)
        lost = (owed | use.stored) - use.taken - left
        assert not lost, f"{len(lost)} messages are lost after {done}: {sorted(lost)[:3]}"
        assert whole_queue(root) == left
        assert not any(change.is_unfinished for change in changes(layout_of(root)))
        MessageStore.open(root, "rw", CONFIG, full_check=True).close()
    return done


def main(folder: Path, verbs: list[str]) -> None:
    """Try every case of these verbs, or of all, and where undo and resume can both follow each of them; ends with an
    error once all were tried if any failed."""
    failed = total = 0
    for verb in verbs or VERBS:
        count = 0
        states: set[int] = set()
        for case in cases(verb, folder / verb, 1):
            states.add(case.stop.state)
            for prefers in case.prefers, *{"undo", "resume"} - {case.prefers}:
                count += 1
                try:
                    done = tried(case._replace(prefers=prefers))
                except Exception as error:  # noqa: BLE001 - told, and the next case is tried
                    failed += 1
                    print(f"{verb}: {case}: {type(error).__name__}: {error}", flush=True)
                    continue
                if prefers not in done:
                    break
        total += count
        print(f"{verb}: {count} cases at {len(states)} states", flush=True)
        shutil.rmtree(folder / verb)
    print(f"{total} cases of {len(verbs or VERBS)} verbs in {time.process_time():.0f} s, {failed} failed")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
