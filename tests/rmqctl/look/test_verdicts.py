"""The first sentence of `info`, `check` and `predict`, and the command that it names: it can be run as it stands."""

from __future__ import annotations

import csv
import io
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.reports.check_report import of_prediction
from rmqctl.store.predict import Prediction
from tests import processes
from tests.goldens import GoldenStore, log_golden
from tests.opened import store_path
from tests.quick import every
from tests.rmqctl.looking import run
from tests.terminal import on_a_terminal, rmqctl_on_a_terminal


def told(verb: str, name: str) -> tuple[str, str | None]:
    """The sentence, and the command without the store."""
    lines = run(verb, "-s", store_path(name)).out.splitlines()
    command = lines[1].removeprefix("next: ") if len(lines) > 1 and lines[1].startswith("next: ") else None
    if command is not None:
        assert run(*shlex.split(command)[1:]).code in (exit_codes.OK, exit_codes.DAMAGE_OR_NOTHING, exit_codes.REFUSED)
        command = command.replace(str(store_path(name)), "S")
    return lines[0], command


@pytest.mark.parametrize(
    "case",
    every(
        3,
        [
            ("info", "clean", "Closed cleanly: 2500 messages in 9 commitlog files.", "rmqctl check -s S"),
            (
                "info",
                "crash",
                "Not closed cleanly, and no process has it open: 2500 messages in 10 commitlog files.",
                "rmqctl predict -s S",
            ),
            (
                "info",
                "gap",
                "Damaged: 1 damaged span in the commitlog; 2196 messages in 8 commitlog files.",
                "rmqctl check -s S",
            ),
            (
                "info",
                "stray-file",
                "1 problem that a broker would stop at or trip over; 2500 messages in 9 commitlog files.",
                "rmqctl check -s S",
            ),
            ("predict", "clean", "A broker 5.3.3 starts and loses nothing.", None),
            ("predict", "stray-file", "A broker 5.3.3 does not start.", "rmqctl check -s S"),
            (
                "predict",
                "crc-flip-last",
                "A broker 5.3.3 starts, and loses 25 messages.",
                "rmqctl recover --dry-run -s S",
            ),
            ("check", "clean", "Nothing is wrong.", None),
            ("check", "longtopic-toolong", "Nothing is wrong; 3 notices.", None),
            (
                "check",
                "cq-lost",
                "Something is wrong: 1 error; nothing is lost.",
                "rmqctl recover -s S",
            ),
        ],
    ),
)
def test_the_first_sentence(case: tuple[str, str, str, str | None]) -> None:
    verb, name, sentence, command = case
    assert told(verb, name) == (sentence, command)


def test_a_store_that_somebody_has_open(golden_store: GoldenStore) -> None:
    from rmqctl.store import MessageStore

    with MessageStore.open(golden_store("clean"), "rw") as store:
        lines = run("info", "-s", store.files.root).out.splitlines()
    assert lines[0] == f"In use by process {os.getpid()}: 2500 messages in 9 commitlog files."


@pytest.mark.parametrize("verb", ["info", "check", "predict"])
def test_programs_get_none(verb: str, tmp_path: Path) -> None:
    for row in run(verb, "-s", store_path("gap"), "--json").objects:
        assert "code" in row or "path" in row or "broker" in row
    assert len(next(csv.reader(io.StringIO(run(verb, "-s", store_path("gap"), "--format", "csv").out)))) > 3


def test_a_broker_conf_is_part_of_the_command(golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("crash")
    conf = tmp_path / "a broker.conf"
    conf.write_text(f"storePathRootDir={store}\n")
    lines = run("info", "-c", conf).out.splitlines()
    assert lines[1] == f"next: rmqctl predict -s {store} -c '{conf}'"


def test_severities_have_colours_on_a_terminal_alone() -> None:
    check = ["check", "-s", str(store_path("gap"))]
    shown = rmqctl_on_a_terminal(*check)
    assert "\x1b[1;31mSomething is wrong" in shown.sent
    assert "\x1b[1;31merror " in shown.sent
    assert "\x1b[33mwarning " in shown.sent
    assert "\x1b[32mClosed cleanly" in rmqctl_on_a_terminal("info", "-s", store_path("clean")).sent
    plain = on_a_terminal(["env", "NO_COLOR=1", sys.executable, "-m", "rmqctl", *check])
    assert "31m" not in plain.sent
    assert plain.screen == shown.screen
    assert "\x1b" not in run(*check).out


def test_what_a_start_passes_over_is_made_due_by_rebuild() -> None:
    passed = Prediction("5.5.0", messages_stuck=3, messages_passed_over=3)
    said = of_prediction(passed, Path("/s"), None)
    assert said.sentence == "A broker 5.5.0 starts, and never delivers 3 delayed messages."
    assert said.command == "rmqctl rebuild --timer --dry-run -s /s"
    # what else is wrong comes first
    others = Prediction("5.5.0", messages_stuck=4, messages_passed_over=3)
    assert of_prediction(others, Path("/s"), None).command == "rmqctl check -s /s"


@pytest.mark.parametrize("crashed", [False, True])
def test_a_member_with_queues_in_rocksdb_is_sent_to_what_helps(crashed: bool, tmp_path: Path) -> None:
    """`recover` writes nothing of such queues, and keeps an `abort` with which the start fills them."""
    store, conf = log_golden("v55-dledger", tmp_path / "golden").store, tmp_path / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\n")
    shutil.rmtree(store / "consumequeue")
    if crashed:
        (store / "abort").touch()
    else:
        done = run("predict", "-s", store, "-c", conf)
        assert done.out.splitlines()[:2] == [
            "A broker 5.5.0 starts, and leaves 320 messages out of every queue.",
            f"next: touch {store}/abort",
        ]
        assert "recover" not in done.err
        assert run("doctor", "-s", store, "-c", conf, "--json").objects[0]["predict"]["messages_unqueued"] == 320
        processes.run(shlex.split(done.out.splitlines()[1].removeprefix("next: ")), check=True)
    assert run("recover", "-s", store, "-c", conf, "-y").code == 0
    assert not list((store / "consumequeue").glob("*"))
    done = run("predict", "-s", store, "-c", conf)
    assert done.out.splitlines()[:2] == ["A broker 5.5.0 starts and loses nothing.", ""]


def test_what_a_start_cuts_in_rocksdb_needs_nothing(tmp_path: Path) -> None:
    rows = [{"units_dropped": 1, "units_misplaced": 0, "topic": "T", "queue_id": 0}]
    found = Prediction("5.5.0", queues_changed=rows)
    said = of_prediction(found, tmp_path, None, in_rocksdb=True)
    assert said[:2] == ("A broker 5.5.0 starts, and cuts queue units that lead to no message.", None)
    assert of_prediction(found, tmp_path, None).command == f"rmqctl recover --dry-run -s {tmp_path}"
    found.messages_unqueued = 1
    assert of_prediction(found, tmp_path, None, in_rocksdb=True).command is None
