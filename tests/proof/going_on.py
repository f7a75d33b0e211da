"""What a user does after a verb was killed or met a failing disk, and whether all is well then."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from pyarrow import parquet

from rmqctl.output import outcome as exit_codes
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.recover import recover
from rmqctl.store.snapshot.snapshot import MANIFEST_NAME
from tests.goldens import TreeState, tree_state
from tests.proof.stores import CONFIG, held
from tests.proof.works import KEEP_NOTHING, MENDS, WORKS, Told, Work, attempt, nobody, on_files, resumed, undone
from tests.rmqctl.looking import run
from tests.store.write.writing import stored_messages

Way = Literal["undo", "resume"]


def content(root: Path) -> TreeState:
    """The store and the times of everything in it; but for `lock`, which a refused change may leave."""
    found = tree_state(root)
    found.pop("lock", None)
    found.pop(".", None)
    return found


def go_on(name: str, place: Path, base: Path, first: Told, way: Way, expected: set[bytes]) -> None:
    """What its user does after a work that ended as `first`, or was killed (a code below 0), when the disk is well:
    end what is unfinished, make the store whole, do the same again. AssertionError unless that leads to a store without
    an alarm that leads to all messages of these bodies.

    `base` is what `place` was made from.
    """
    work, root, layout = WORKS[name], place / "s", CONFIG.layout(place / "s")
    if work.makes is not None:
        _require_whole_or_none(work, place, first)
        assert content(root) == content(base / "s"), "a look has changed the store"
        return
    begun = base / "original" if (base / "original").exists() else base / "s"
    if unfinished_change(layout) is not None and name in KEEP_NOTHING:
        make_whole(work, place)
    elif unfinished_change(layout) is not None:
        assert first.code != exit_codes.OK, "an unfinished change, and no error"
        (undo if way == "undo" else resume)(layout)
        assert unfinished_change(layout) is None
        if way == "undo" and name != "prune":
            assert content(root) == content(begun), "undo has left another store"
    gone = expected - set(held(place))
    assert not gone, f"{len(gone)} messages are gone, such as {min(gone)[:20]!r}"
    told = attempt(work, place, expected.add)
    if told.code == exit_codes.REFUSED:  # the store was not closed cleanly
        assert layout.abort.exists() or "rmqctl recover" in told.text, told
        make_whole(work, place)
        told = attempt(work, place, expected.add)
    ends_itself = work.run in (undone, resumed) or name == "purge"
    nothing_left = told.code == exit_codes.DAMAGE_OR_NOTHING and ends_itself
    assert told.code == exit_codes.OK or nothing_left, f"again: {told}"
    if work.run is undone:
        same = content(root) == content(begun)
        assert same or way == "resume", "undo has left another store"
    if work.base not in ("whole", "configured", "mirrored"):  # what has no abort file is not recovered
        make_whole(work, place)
    assert alarms(root) == [], alarms(root)
    missing = expected - set((held if name == "purge" else all_in_queues)(place))
    assert not missing, f"{len(missing)} messages are gone, such as {min(missing)[:20]!r}"


def required(name: str, place: Path, noted: list[bytes]) -> list[bytes]:
    """Of acknowledged messages those that have to be there: all, but for the pool, which keeps the last ones in memory
    alone (docs/durability.md). AssertionError for a hole in what it has lost."""
    if name != "append-pool":
        return noted
    there = set(held(place))
    kept = [body in there for body in noted]
    assert kept == sorted(kept, reverse=True), "a hole in what the pool has written"
    return [body for body in noted if body in there]


def make_whole(work: Work, place: Path) -> None:
    """What mends stores of the work's base."""
    MENDS.get(work.base, on_files(recover))(place, nobody)


def _require_whole_or_none(work: Work, place: Path, first: Told) -> None:
    target = place / str(work.makes)
    for _ in range(2):
        if target.exists():
            assert _is_whole(place, target), "a file under its final name is not complete"
        else:
            assert first.code != exit_codes.OK, "done, and nothing is there"
        shutil.rmtree(place / "s.new")
        (place / "s.new").mkdir()
        first = attempt(work, place, nobody)
        assert first.code == exit_codes.OK, f"again: {first}"


def _is_whole(place: Path, target: Path) -> bool:
    wanted = len(held(place))
    if target.suffix == ".jsonl":
        return len(target.read_bytes().splitlines()) == wanted
    if target.suffix == ".parquet":
        return bool(parquet.read_metadata(target).num_rows == wanted)
    if (target / MANIFEST_NAME).exists():
        return run("snapshot", "--verify", target).code == exit_codes.OK
    return alarms(target) == [] and len(stored_messages(target, CONFIG)) == wanted


def alarms(root: Path) -> list[str]:
    """What `check` finds in a store."""
    with MessageStore.open(root, "r", CONFIG) as store:
        return [str(finding) for finding in store.check() if finding.severity.is_alarm]


def all_in_queues(place: Path) -> list[bytes]:
    """The bodies of all messages that queues lead to."""
    found: list[bytes] = []
    with MessageStore.open(place / "s", "r", CONFIG) as store:
        for queue in store.reader.queues():
            offset = 0
            while offset < queue.max_offset:
                result = store.get(queue.topic, queue.queue_id, offset, 64)
                assert result.damaged == []
                found += [one.body for one in result.messages]
                offset = result.next_offset
    return found
