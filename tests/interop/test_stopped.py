"""A real broker uses a store on which a command was killed: what it stored is there when the store is whole again.

The commands, their kill points and the way out are those of tests/store/journal/between_steps, where everybody else
is in between.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop import harness
from tests.interop.harness import BrokerView, Job, Written
from tests.store.journal.between_steps import cheaply
from tests.store.journal.commands import CONFIG, Kept, messages, whole_queue
from tests.store.journal.outsiders import way_out
from tests.store.journal.stops import copied, stops
from tests.store.journal.verbs import VERBS

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

PROPERTIES = {
    "store.mappedFileSizeCommitLog": str(CONFIG.mapped_file_size_commit_log),
    "store.mappedFileSizeConsumeQueue": str(CONFIG.mapped_file_size_consume_queue),
    "store.maxHashSlotNum": str(CONFIG.max_hash_slot_num),
    "store.maxIndexNum": str(CONFIG.max_index_num),
    "store.enableCompaction": "false",
    "store.timerWheelEnable": "false",
}
STORED = 12
THREADS = 18
STOPPED: dict[str, list[tuple[str, str]]] = {
    "5.3.3": [
        ("log --prune", r"fsync .*history"),
        ("log --prune", r"fsync .*\.rmqctl$"),
        ("log --prune of --journal", r"fsync .*history"),
        ("log --prune of --journal", r"fsync .*disk/.*\.rmqctl$"),
        ("clean", r"fsync .*commitlog$"),
        ("clean", r"fsync .*consumequeue"),
        ("recover --no-journal", r"create .*consumequeue"),
        ("recover --no-journal", r"write .*history"),
        ("rebuild --no-journal", r"rmtree .*index$"),
        ("repair", r"create .*consumequeue"),
        ("repair --no-journal", r"remove .*abort"),
        ("truncate", r"write .*consumequeue"),
        ("truncate", r"fsync .*-truncate$"),
        ("truncate --no-journal", r"remove .*commitlog"),
        ("truncate --no-journal", r"remove .*consumequeue"),
        ("recover --journal", r"fsync .*/moved/"),  # abort is about to be moved into it
        ("resume of truncate", r"write .*checkpoint"),
        ("undo of a mend", r"write .*consumequeue"),
    ],
    "4.9.8": [
        ("log --prune", r"fsync .*history"),
        ("clean", r"fsync .*consumequeue"),
        ("truncate --no-journal", r"remove .*consumequeue"),
    ],
}
"""By version: a verb, and before which of its changes it was killed, by what stands at its beginning."""


class Used(NamedTuple):
    """A store that a broker used. `left`: our messages that were there when it stopped."""

    name: str
    root: Path
    left: set[Kept]
    written: list[Written]


def _killed(verb: str, before: str, folder: Path) -> Path:
    """The store of a verb that was killed before the first change of that kind."""
    root = folder / "now" / "a store"
    found: list[str] = []

    def chosen(_state: int, change: str) -> bool:
        if not found and re.match(before, change):
            found.append(change)
            return True
        return False

    with cheaply():
        VERBS[verb].prepare(root)
        [stop] = stops(root.parent, folder / "stop", lambda: VERBS[verb].work(root), chosen)
    copied(stop.copy, root.parent)
    return root


def _used(version: str, folder: Path) -> list[Used]:
    """Each of the stores after a run of a broker."""
    roots = [_killed(verb, before, folder / str(place)) for place, (verb, before) in enumerate(STOPPED[version])]
    written = harness.write_many(version, [Job(root, PROPERTIES) for root in roots], messages=STORED, threads=THREADS)
    names = [f"{verb}, killed before {before}" for verb, before in STOPPED[version]]
    return [Used(*row) for row in zip(names, roots, map(messages, roots), written, strict=True)]


def _assert_there(used: Used, view: BrokerView, done: list[str]) -> None:
    seen = {message.physical_offset: message.body_sha256 for message in view.messages}
    stored = {row.physical_offset: row.body_sha256 for row in used.written if row.status == "PUT_OK"}
    assert len(stored) == STORED, used.name
    assert {offset: seen.get(offset) for offset in stored} == stored, (used.name, done)
    assert {one.physical_offset for one in used.left} <= seen.keys(), (used.name, done)


def _ended(used: Used) -> list[str]:
    """Do what the hints say, each way there is; returns the commands of the last one, whose outcome is left there."""
    beside = used.root.parent.with_name("used")
    copied(used.root.parent, beside)
    for prefers in ("undo", "resume"):
        copied(beside, used.root.parent)
        with cheaply():
            done = way_out(used.root, prefers)
        assert used.left <= messages(used.root), (used.name, done)
        assert whole_queue(used.root) == messages(used.root), (used.name, done)
        if prefers not in done:
            break
    return done


@pytest.mark.parametrize("version", STOPPED)
def test_what_a_broker_stored_stays(tmp_path: Path, version: str) -> None:
    every = _used(version, tmp_path)
    done = [_ended(used) for used in every]
    found = harness.open_many(version, [Job(used.root, PROPERTIES) for used in every], threads=THREADS)
    for used, view, steps in zip(every, found, done, strict=True):
        _assert_there(used, view, steps)
