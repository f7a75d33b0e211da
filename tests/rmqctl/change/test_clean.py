"""`rmqctl clean`: what it says, asks, changes and ends with."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rmqctl.main import main
from rmqctl.output.outcome import agrees
from rmqctl.output.times import now_ms, parse_span
from tests.goldens import GoldenStore, broker_conf, tree_state

HOUR = 3_600_000


@pytest.fixture
def store(golden_store: GoldenStore) -> Path:
    """The clean golden, its first three commitlog files 100 hours old, the others one hour."""
    path = golden_store("clean")
    for position, file in enumerate(sorted((path / "commitlog").iterdir())):
        stamp = (now_ms() - (100 if position < 3 else 1) * HOUR) * 1_000_000
        os.utime(file, ns=(stamp, stamp))
    return path


def log_count(store: Path) -> int:
    return len(list((store / "commitlog").iterdir()))


def test_a_dry_run_lists_what_goes_and_why_the_rest_stays(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree_state(store)
    assert main(["clean", "-s", str(store), "--dry-run", "--bytes"]) == 0
    assert tree_state(store) == before
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines()]
    logs = [(line[4], line[5]) for line in lines if line[0] == "commitlog"]
    assert logs == (
        [("remove", "expired")] * 3 + [("keep", "young")] + [("keep", "behind_a_kept_file")] * 4 + [("keep", "last")]
    )
    assert "3 commitlog files" in shown.err
    assert "the commitlog would begin at 786432 instead of 0" in shown.err


def test_without_a_terminal_it_needs_yes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree_state(store)
    assert main(["clean", "-s", str(store)]) == 5
    assert "--yes" in capsys.readouterr().err
    assert tree_state(store) == before


def test_it_removes_and_says_so_as_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "-s", str(store), "--yes", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert log_count(store) == 6
    assert (answer["min_offset_before"], answer["min_offset"], answer["dry_run"]) == (0, 786432, False)
    removed = [Path(row["file"]) for row in answer["removed"]]
    assert answer["files_removed"] == len(removed)
    assert not any(path.exists() for path in removed)
    assert answer["bytes_freed"] == sum(row["size"] for row in answer["removed"])
    assert all(Path(row["file"]).exists() for row in answer["kept"])
    assert {row["reason"] for row in answer["kept"] if row["kind"] == "commitlog"} == {
        "young",
        "behind_a_kept_file",
        "last",
    }


def test_a_second_run_finds_nothing_and_asks_nothing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "-s", str(store), "-y"]) == 0
    capsys.readouterr()
    before = tree_state(store)
    assert main(["clean", "-s", str(store)]) == 0
    assert "no file was removed" in capsys.readouterr().err
    assert tree_state(store) == before


def test_age_batch_and_at_once(store: Path) -> None:
    assert main(["clean", "-s", str(store), "-y", "--older-than", "101h"]) == 0
    assert log_count(store) == 9
    assert main(["clean", "-s", str(store), "-y", "--batch-max", "1"]) == 0
    assert log_count(store) == 8
    assert main(["clean", "-s", str(store), "-y", "--older-than", "30m", "--batch-max", "4"]) == 0
    assert log_count(store) == 4
    assert main(["clean", "-s", str(store), "-y", "--at-once"]) == 0
    assert log_count(store) == 1


def test_the_broker_s_own_rule(store: Path) -> None:
    hour = time.localtime().tm_hour
    other = f"{(hour + 12) % 24:02d}"
    common = ["clean", "-s", str(store), "-y", "--scheduled", "--disk-ratio", "95"]
    assert main([*common, "--delete-when", other, "--dry-run", "--json"]) == 0
    assert main([*common, "--delete-when", f"{hour};{(hour + 1) % 24}"]) == 0
    assert log_count(store) <= 6


@pytest.mark.parametrize("verb", [["--dry-run"], ["--forecast"]])
def test_files_that_are_younger_than_their_messages_are_named(
    golden_store: GoldenStore, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden_store("clean")
    for file in (store / "commitlog").iterdir():
        os.utime(file, (1 << 32, 1 << 32))
    assert main(["clean", *verb, "-s", str(store)]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "by mtime 8 commitlog files are younger than the messages in them" in err
    assert f"`rmqctl repair --only RMQ-TIME-001 -s {store}`" in err


def test_a_plan_for_another_time(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "-s", str(store), "--dry-run", "--json", "--now", str(now_ms() + 72 * HOUR)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sum(row["kind"] == "commitlog" for row in answer["removed"]) == 8


def test_settings_of_a_broker_conf(store: Path) -> None:
    conf = broker_conf("clean", store.parent)
    conf.write_text(conf.read_text(encoding="utf-8") + "fileReservedTime=101\n", encoding="utf-8")
    assert main(["clean", "-c", str(conf), "-y"]) == 0
    assert log_count(store) == 9
    conf.write_text(conf.read_text(encoding="utf-8") + "fileReservedTime=99\ndeleteFileBatchMax=2\n", encoding="utf-8")
    assert main(["clean", "-c", str(conf), "-y"]) == 0
    assert log_count(store) == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ["--delete-when", "05"],
        ["--disk-ratio", "50"],
        ["--scheduled", "--delete-when", "25"],
        ["--scheduled", "--disk-ratio", "101"],
        ["--now", "1h ago"],
        ["--older-than", "yesterday"],
        ["--older-than", "72"],
        ["--batch-max", "0"],
    ],
)
def test_wrong_usage(store: Path, arguments: list[str]) -> None:
    assert main(["clean", "-s", str(store), "-y", *arguments]) == 2
    assert log_count(store) == 9


def test_refusals(golden_store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed = golden_store("crash")
    assert main(["clean", "-s", str(crashed), "--at-once", "-y"]) == 5
    assert "recover" in capsys.readouterr().err
    assert main(["clean", "-s", str(tmp_path / "nowhere"), "-y"]) == 3
    gap = golden_store("gap")
    assert main(["clean", "-s", str(gap), "--at-once", "-y"]) == 5
    assert log_count(gap) == 8
    assert main(["clean", "-s", str(gap), "--at-once", "--accept-gaps", "-y"]) == 0
    assert log_count(gap) == 1


def test_the_answer_at_a_terminal_decides(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    answers = iter(["n", "y"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(answers))
    assert main(["clean", "-s", str(store)]) == 0
    assert log_count(store) == 9
    assert main(["clean", "-s", str(store)]) == 0
    assert log_count(store) == 6


def test_confirm_with_yes_asks_nobody() -> None:
    assert agrees("deletes 3 messages", yes=True)


@pytest.mark.parametrize(
    ("text", "expected"), [("72h", 259_200_000), ("1d12h", 129_600_000), (" 90 S ", 90_000), ("5ms", 5), ("0s", 0)]
)
def test_lengths_of_time(text: str, expected: int) -> None:
    assert parse_span(text) == expected
