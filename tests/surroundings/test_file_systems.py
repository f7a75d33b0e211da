"""Changes of a store, and their undo, on real file systems."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.main import main
from tests.anyday.at_a_date import shifted_by
from tests.goldens import GoldenStore, TreeState, broker_conf, tree_state
from tests.quick import sample
from tests.surroundings.mounts import NAMES, mounted

# none of its topics is called `Trade|Event`: RocketMQ takes that name, exFAT and NTFS do not
GOLDEN = "broker-real"
_UNDONE = {".", "lock"}


def _state(store: Path, name: str) -> TreeState:
    """Return the state of all files; under a set clock without times on exFAT, whose change times are those of the
    content, by which tests/anyday/shift.c cannot see that a time was set meanwhile."""
    state = tree_state(store)
    if name == "exfat-fuse" and shifted_by():
        return {path: (size, 0, digest) for path, (size, _, digest) in state.items()}
    return state


def _changed(before: TreeState, after: TreeState) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} - _UNDONE


@pytest.mark.parametrize("name", sample(NAMES, ["ext4-128"]))
def test_every_change_and_its_undo(
    golden_store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with mounted(name, tmp_path / "disk") as disk:
        store, elsewhere = disk / "store", tmp_path / "elsewhere"
        elsewhere.mkdir()
        golden = golden_store(GOLDEN)
        shutil.copytree(golden, store)
        shutil.rmtree(store / "consumequeue")
        settings = broker_conf(GOLDEN, golden.parent)

        def done(*arguments: str) -> None:
            code = main([*arguments, "-s", str(store), "-c", str(settings)])
            said = capsys.readouterr()
            assert code == 0, f"{arguments}: {said.err}{said.out}"

        before = _state(store, name)
        for change in (
            ["recover", "--yes"],
            ["rebuild", "--yes", "--journal", str(elsewhere)],
        ):
            done(*change)
            assert _changed(before, _state(store, name)), change
            done("undo", "--yes")
            assert not _changed(before, _state(store, name)), change
        done("recover", "--yes")
        done("append", "-t", "T", "--body", "x", "--property", "UNIQ_KEY=0000000000000000000000000000000A")
        done("snapshot", str(disk / "copy"))
        done("snapshot", str(disk / "copy"), "--verify")
        done("log", "--prune", "--yes")
        done("check", "--quick")
        assert not list(disk.rglob("*.gone"))
