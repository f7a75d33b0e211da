"""A store on a server is told as the same one on this machine, byte for byte, by every verb that looks: what was not
fetched yet is never taken for zeros of the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from tests import quick
from tests.goldens import GoldenStore
from tests.opened import store_path
from tests.quick import sample
from tests.rmqctl.all_verbs.test_look_changes_nothing import commands
from tests.rmqctl.looking import Done, run
from tests.store.remote.served import served

# What takes room on a server has no holes, what has an age gets older, and the disks of a server cannot be measured:
# compared without it, as JSON, and without the lines about writes.
_ROOM = ("on_disk_bytes", "queue_on_disk_bytes", "age_ms", "writes")
# of the commands: one in so many in the quick run, and of all stores but one in the full run
_SHARE, _SHARE_OF_MORE = 5, 3
_GOLDENS = ["crc-flip-third", "clean", "v4-clean", "features", "crash", "gap", "torn-zero"]
_WHOLE = "crc-flip-third"
# further verbs that look
_MORE: list[list[object]] = [
    ["check", "--json"],
    ["check", "--full", "--json"],
    ["check", "--quick"],
    ["recover", "--dry-run"],
    ["rebuild", "--dry-run", "--json"],
    ["repair", "--dry-run"],
    ["export", "-", "--format", "json"],
    ["log"],
    ["sql", "select topic, queue_id, queue_offset, physical_offset, body from messages order by 4"],
    ["sql", "select * from queues order by all"],
    ["sql", 'select * from "index" order by all limit 50'],
    ["sql", "select code, physical_offset, message from findings order by all"],
]


@pytest.mark.parametrize("name", sample(_GOLDENS, [_WHOLE]))
def test_every_look_says_the_same(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    # as long as the path, so that tables are as wide
    address = "s3://b/" + str(store)[7:]
    every = [*commands(store, name), *([*one[:1], "-s", store, *one[1:]] for one in _MORE)]
    share = _SHARE if quick.is_quick else 1 if name == _WHOLE else _SHARE_OF_MORE
    taken = every[_GOLDENS.index(name) % share :: share]
    for number, command in enumerate(taken[quick.drawn_slice(name, len(taken))]):
        if command[0] in ("clean", "watch", "report") or command == ["halves", "-s", store]:
            continue  # refused, see below; numbers of disks, and when they were read; a table of ages
        asked = [*command, "--json"] if command[0] in ("du", "ls") and "--json" not in command else command
        here = run(*asked)
        with served(store, address, has_digests=number % 2 == 0) as (_, shadow):
            there = run(*(_at(argument, store, address) for argument in asked))
            assert str(shadow.top) not in there.out + there.err, command
        told, expected = there.without_notices, here.without_notices
        assert _comparable(told, address, str(store)) == _comparable(expected, str(store), str(store)), command


def _at(argument: object, store: Path, address: str) -> object:
    return str(argument).replace(str(store), address) if isinstance(argument, Path) else argument


def _comparable(done: Done, address: str, path: str) -> tuple[int, str, str]:
    out = done.out.replace(address, path)
    if out.startswith("{") and any(f'"{name}"' in out for name in _ROOM):
        out = "\n".join(_without_room(json.loads(line)) for line in out.splitlines())
    out = "\n".join(line for line in out.splitlines() if not line.startswith(("Writes: ", "writes ")))
    return done.code, out, done.err.replace(address, path)


def _without_room(value: object) -> str:
    def cleaned(one: object) -> object:
        if isinstance(one, dict):
            return {name: cleaned(item) for name, item in one.items() if name not in _ROOM}
        return [cleaned(item) for item in one] if isinstance(one, list) else one

    return json.dumps(cleaned(value))


@pytest.mark.parametrize(
    "command",
    [
        ["recover", "-y"],
        ["rebuild", "-y"],
        ["repair", "-y"],
        ["truncate", "--at", 0, "-y"],
        ["purge", "-t", "TopicTest", "-y"],
        ["clean", "--dry-run"],
        ["clean", "--forecast"],
        ["append", "-t", "TopicTest", "--body", "x"],
        ["offsets", "reset", "-g", "g", "-t", "TopicTest", "--to", "latest", "-y"],
        ["cat", "--follow", "-n", 0],
        ["undo", "-y"],
        ["undo", "--dry-run"],
        ["undo", "--give-up"],
        ["resume"],
    ],
    ids=lambda command: "-".join(map(str, command[:2])),
)
def test_what_would_change_it_is_refused_with_a_way_out(command: list[object]) -> None:
    with served(store_path("clean")):
        verbs = 2 if command[0] == "offsets" else 1
        done = run(*command[:verbs], "-s", "s3://bucket/store", *command[verbs:])
    assert done.code == exit_codes.REFUSED, done
    assert "s3://bucket/store: is on a server, where stores are read-only" in done.err
    assert "rmqctl snapshot -s s3://bucket/store DIR" in done.err


def test_a_snapshot_brings_a_store_here(tmp_path: Path) -> None:
    store = store_path("crash")
    with served(store):
        done = run("snapshot", "-s", "s3://bucket/store", tmp_path / "copy")
    assert done.code == exit_codes.OK, done
    assert run("snapshot", "--verify", tmp_path / "copy").code == exit_codes.OK
    copied = [path for path in store.rglob("*") if path.is_file() and path.parent.name != "store"]
    assert all((tmp_path / "copy" / path.relative_to(store)).read_bytes() == path.read_bytes() for path in copied)


def test_a_folder_is_found_by_its_address_and_by_file_too() -> None:
    store = store_path("clean")
    assert run("cat", "-s", f"file://{store}", "-n", 5).out == run("cat", "-s", store, "-n", 5).out
