"""Rebuilt copies of compacted topics hold, byte for byte, what RocketMQ's own compaction left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store import MessageStore
from rmqctl.store.files import lock
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.read.compacted import COMPACTION, LOGS, POSITIONS, QUEUES, FileSizes
from tests.goldens import LogGolden, log_golden, tree_state
from tests.rmqctl.looking import run
from tests.store.files.crashing import crashed, recorded

_TOPIC = "CompactTopic"
_CONF = "compactionMappedFileSize=16384\ncompactionCqMappedFileSize=2000\n"
_SIZE = 15824
_ENTRY = {"topicName": _TOPIC, "readQueueNums": 2, "writeQueueNums": 2, "attributes": {"cleanup.policy": "COMPACTION"}}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-compacted", tmp_path_factory.mktemp("compacted"))


@pytest.fixture
def store(golden: LogGolden, tmp_path: Path) -> Path:
    made = golden.copied_to(tmp_path / "store")
    (made / "config").mkdir(exist_ok=True)
    (made / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {_TOPIC: _ENTRY}}))
    return made


def _copies(store: Path) -> dict[str, bytes]:
    """The files of all copies."""
    folder = store / COMPACTION
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("0000*"))}


def _is_sound(store: Path) -> bool:
    return "-CMP-" not in run("check", "-s", store).out


def _lose_files(store: Path) -> None:
    shutil.rmtree(store / COMPACTION / LOGS)
    shutil.rmtree(store / COMPACTION / QUEUES)


def _lose_logs(store: Path) -> None:
    shutil.rmtree(store / COMPACTION / LOGS / _TOPIC / "0")


def _flip(store: Path) -> None:
    path = store / COMPACTION / LOGS / _TOPIC / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for at in range(95, len(data), 700):
        data[at] ^= 0xFF
    path.write_bytes(data)


def _interrupt(store: Path) -> None:
    path = store / COMPACTION / LOGS / _TOPIC / "0" / f"{0:020d}"
    shutil.copy(path, path.with_name(path.name + ".delete"))


@pytest.mark.parametrize(
    "damage",
    [lambda store: None, _lose_files, _lose_logs, _flip, _interrupt],
    ids=["none", "files", "logs", "flip", "cut"],
)
def test_what_a_compaction_left_is_written_again(store: Path, damage: Callable[[Path], None]) -> None:
    wanted = _copies(store)
    damage(store)
    (store.parent / "broker.conf").write_text(_CONF)
    before = tree_state(store)
    dry = run("rebuild", "-s", store, "-c", store.parent / "broker.conf", "--compacted", "--dry-run", "--json")
    assert tree_state(store) == before
    done = run("rebuild", "-s", store, "-c", store.parent / "broker.conf", "--compacted", "--json")
    assert (done.code, dry.code) == (exit_codes.OK, exit_codes.OK)
    (row,), (planned,) = done.objects, dry.objects
    assert (row["queues_rebuilt"], row["units"], row["topics"]) == (2, 94, [_TOPIC])
    assert [one["path"] for one in planned["operations"]] == [one["path"] for one in row["operations"]]
    made = _copies(store)
    for kind in (LOGS, QUEUES):
        for queue_id in range(2):
            folder = f"{kind}/{_TOPIC}/{queue_id}"
            assert made[f"{folder}/{0:020d}"] == wanted[f"{folder}/{0:020d}"]
            assert {name for name in made if name.startswith(folder)} == {
                f"{folder}/{0:020d}",
                f"{folder}/{_SIZE:020d}",
            }
    assert _is_sound(store)
    assert run("undo", "-s", store, "--yes").code == exit_codes.OK
    assert {name: state[0] for name, state in tree_state(store).items()} == {
        name: state[0] for name, state in before.items()
    }


def test_without_a_position_every_message_with_a_key_is_kept(store: Path, golden: LogGolden) -> None:
    _lose_files(store)
    for name in (POSITIONS, f"{POSITIONS}.bak"):
        (store / COMPACTION / name).unlink()
    (store.parent / "broker.conf").write_text(_CONF)
    (row,) = run("rebuild", "-s", store, "-c", store.parent / "broker.conf", "--compacted", "--json").objects
    keyed = [one for one in golden.rows("msg") if one["topic"] == _TOPIC and one["properties"].get("KEYS")]
    assert row["units"] == len(keyed)
    assert _is_sound(store)
    # full files end as a broker ends them: a blank frame, and a unit of -1
    files = sorted((store / COMPACTION / QUEUES / _TOPIC / "0").iterdir())
    assert all(b"\xff" * 8 in path.read_bytes() for path in files[:-1])
    printed = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json")
    deleted = [one for one in printed.objects if not one["body_size"]]
    assert deleted
    assert "is deleted" in printed.err


def test_messages_that_only_the_copy_has_stay(store: Path) -> None:
    wanted = {row["unique_key"] for row in run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json").objects}
    for path in (store / "commitlog").iterdir():
        path.unlink()
    assert run("rebuild", "-s", store, "--compacted", "-t", _TOPIC).code == exit_codes.OK
    done = run("cat", "-s", store, "-t", _TOPIC, "--compacted", "--json")
    assert {row["unique_key"] for row in done.objects} == wanted


def test_what_neither_has_is_counted(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.unlink()
    _flip(store)
    done = run("rebuild", "-s", store, "--compacted", "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert done.objects[0]["damaged_spans"] > 0
    assert "the commitlog has them no more" in done.err


def test_sizes_that_nothing_tells_are_asked_for(store: Path) -> None:
    _lose_files(store)
    done = run("rebuild", "-s", store, "--compacted")
    assert done.code == exit_codes.REFUSED
    assert "compactionCqMappedFileSize" in done.err
    assert run("rebuild", "-s", store, "--compacted", "--index").code == exit_codes.USAGE
    assert run("rebuild", "-s", store, "--compacted", "-t", "TopicTest").code != exit_codes.OK


@pytest.mark.parametrize(
    ("log", "queue", "sizes"),
    [(104857600, 10485760, (104857460, 10485746)), (65536, 4000, (67252, 3956)), (16384, 2000, (15824, 1978))],
)
def test_sizes_are_those_that_brokers_make_of_their_settings(log: int, queue: int, sizes: tuple[int, int]) -> None:
    assert FileSizes.configured(log, queue) == sizes


@pytest.mark.parametrize("end", ["undo", "resume"])
def test_a_rebuild_that_is_killed_anywhere_ends_whole(store: Path, end: str, tmp_path: Path) -> None:
    def rebuild(root: Path) -> None:
        with MessageStore.open(root) as opened:
            opened.rebuild(compacted=True)

    _flip(store)
    other = Path(shutil.copytree(store, tmp_path / "other"))
    changes = len(recorded(partial(rebuild, other)))
    old, new = _copies(store), _copies(other)
    assert old != new
    for step in range(1, changes + 1, max(changes // 12, 1)):
        root = Path(shutil.copytree(store, tmp_path / f"store-{step}"))
        crashed(partial(rebuild, root), step)
        lock._held.clear()
        with MessageStore.open(root) as opened:
            if unfinished_change(opened.files.layout) is not None:
                (opened.undo if end == "undo" else opened.resume)()
        assert _copies(root) in (old, new), step
        shutil.rmtree(root)
