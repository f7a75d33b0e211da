"""Replicas under a controller or in a DLedger group: up to where they agree, and what a truncation removes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.config.epoch_file import EPOCH_FILE, Epoch, epoch_bytes
from tests.goldens import golden, log_golden, tree_state, truth
from tests.rmqctl.looking import run

_END = 245226
_BEFORE, _CONFIRMED = 231829, 238553


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Epochs 3 from 0, 7 from 231829 and 9 from 238553 on, with 200, 30 and 30 messages."""
    return golden("v55-controller", tmp_path_factory.mktemp("master"))


@pytest.mark.parametrize(
    ("epochs", "common_end", "messages"),
    [
        ([(3, 0), (7, 231829), (9, 238553)], _END, 0),
        ([(3, 0), (7, 231829)], 238553, 30),
        ([(3, 0), (7, 231829), (8, 238553)], 238553, 30),
        ([(3, 0), (8, 238553)], 231829, 60),
        ([(3, 0), (7, 200000)], 200000, None),
        ([(4, 0)], None, 0),
        ([], None, 0),
    ],
)
def test_a_replica_is_cut_at_the_end_of_the_newest_common_epoch(
    master: Path, tmp_path: Path, epochs: list[tuple[int, int]], common_end: int | None, messages: int | None
) -> None:
    """EpochFileCache#findConsistentPoint: the newest epoch with the same start in both, the lesser of its two ends."""
    slave = Path(shutil.copytree(master, tmp_path / "slave"))
    for path in slave.glob(f"{EPOCH_FILE}*"):
        path.unlink()
    if epochs:
        (slave / EPOCH_FILE).write_bytes(epoch_bytes([Epoch(*one) for one in epochs]))
    before = tree_state(slave)
    done = run("predict", "-s", slave, "--epochs", master, "--json")
    one, best = done.objects
    if len(epochs) < 3 or epochs[-1][0] != 9:
        assert (one["is_best"], best["is_best"], best["epoch"]) == (False, True, 9)
    assert one["common_end"] == common_end
    assert one["bytes_removed"] == (0 if common_end is None else _END - common_end)
    if messages is not None:
        assert one["messages_removed"] == messages
    assert done.code == (exit_codes.DAMAGE_OR_NOTHING if one["bytes_removed"] else exit_codes.OK)
    (of_both,) = run("diff", slave, master, "--json").objects
    assert of_both["replicas"] == (done.objects if epochs else [])
    if one["bytes_removed"]:
        saved = run("cat", "-s", slave, "-o", common_end, "--json").objects
        assert len(saved) == one["messages_removed"]
    assert tree_state(slave) == before


def test_members_of_a_dledger_group(tmp_path: Path) -> None:
    """A member that lacks the last 20 entries loses nothing; what is no copy of the same log is named so."""
    whole = log_golden("v55-dledger", tmp_path)
    short = whole.copied_to(tmp_path / "short")
    with (short / "dledger-n0" / "data" / f"{262144:020d}").open("r+b") as file:
        file.truncate(0)
        file.truncate(262144)
    rows = run("predict", "-s", short, "--epochs", whole.store, "--json").objects
    assert [(row["is_best"], row["epoch"], row["messages_removed"]) for row in rows] == [(False, 0, 0), (True, 0, 0)]
    assert rows[0]["end_offset"] == rows[0]["common_end"] < rows[1]["end_offset"]
    other = golden("v55-controller", tmp_path)
    rows = run("predict", "-s", other, "--epochs", whole.store, "--json").objects
    assert "another log" in next(row["note"] for row in rows if not row["is_best"])


@pytest.mark.parametrize(
    "words", [["truncate", "--at", _BEFORE, "--yes"], ["recover", "--cut", "--yes"]], ids=["truncate", "recover"]
)
def test_what_replicas_have_confirmed_is_cut_only_where_that_is_asked_for(tmp_path: Path, words: list[object]) -> None:
    store = golden("v55-controller", tmp_path)
    if words[0] == "recover":
        with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(_BEFORE)
            file.write(b"\xff" * 300)
    before = tree_state(store)
    verb, *options = words
    refused = run(verb, "-s", store, *options)
    assert (refused.code, "--below-confirm" in refused.err) == (exit_codes.REFUSED, True)
    assert "before its confirm offset 238553" in refused.err
    assert tree_state(store) == before
    assert run(verb, "-s", store, *options, "--below-confirm").code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING)
    (row,) = run("info", "-s", store, "--json").objects
    assert (row["commitlog"]["max_offset"], row["checkpoint"]["confirm_physical_offset"]) == (_BEFORE, _BEFORE)


def test_what_no_replica_has_confirmed_is_cut_as_ever(tmp_path: Path) -> None:
    store = golden("v55-controller", tmp_path)
    last = truth("v55-controller").messages[-1]["phyOffset"]
    assert last > _CONFIRMED
    assert run("truncate", "-s", store, "--at", last, "--yes").code == exit_codes.OK


def test_info_says_what_a_controller_left(tmp_path: Path) -> None:
    store = golden("v55-controller", tmp_path)
    (told,) = run("info", "-s", store, "--json").objects
    assert told["controller"] == {
        "identity": None,
        "confirm_offset": 238553,
        "epochs": [
            {"epoch": 3, "begin": 0, "end": 231829},
            {"epoch": 7, "begin": 231829, "end": 238553},
            {"epoch": 9, "begin": 238553, "end": None},
        ],
    }
    (store / "brokerIdentity").write_text("cluster#broker-a#2")
    assert run("info", "-s", store, "--json").objects[0]["controller"]["identity"] == "cluster#broker-a#2"
    (other,) = run("info", "-s", golden("clean", tmp_path), "--json").objects
    assert other["controller"] is None
