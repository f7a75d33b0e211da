"""What somebody sees who sits at a terminal of 80 columns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import processes
from tests.goldens import GoldenStore
from tests.quick import every
from tests.rmqctl.looking import run
from tests.terminal import on_a_terminal, rmqctl_on_a_terminal

_BUSY = """
from rmqctl.output import terminal
terminal.SHOWN_AFTER = terminal.REFRESHED_EVERY = 0.0
from rmqctl.output.output import Output
output = Output()
with terminal.progress("working", 100, "files") as bar:
    for number in range(3):
        bar.advance(10)
        output.text(f"finding {number}")
        bar.advance(10)
        output.talk(f"note {number}")
        bar.advance(10)
        output.rows(("name",), [{"name": f"row {number}"}])
    bar.advance(1)
"""


def test_what_is_printed_and_the_progress_bar_share_no_line() -> None:
    shown = on_a_terminal([sys.executable, "-c", _BUSY])
    assert shown.sent.count("\x1b[?25l") > 9  # drawn, taken away and drawn again
    expected = [
        line for number in range(3) for line in (f"finding {number}", f"note {number}", "name", f"row {number}")
    ]
    assert [line for line in shown.screen if line] == expected
    assert shown.sent.rindex("\x1b[?25h") > shown.sent.rindex("\x1b[?25l")


def test_check_shows_the_same_with_a_bar_and_without(golden_store: GoldenStore) -> None:
    store = golden_store("gap")
    rmqctl_on_a_terminal("check", "-s", store)  # what has to be compiled first is compiled, and told
    calm = rmqctl_on_a_terminal("check", "-s", store)
    busy = rmqctl_on_a_terminal("check", "-s", store, bars=True)
    assert "checking" in busy.sent
    assert busy.screen == calm.screen
    assert busy.code == calm.code == 1


def test_a_question_is_asked_without_the_bar(golden_store: GoldenStore) -> None:
    asked = rmqctl_on_a_terminal("truncate", "-s", golden_store("clean"), "--at", "1048576", answer="n\n", bars=True)
    assert "reading the commitlog" in asked.sent
    (question,) = [line for line in asked.screen if "Continue?" in line]
    assert question.startswith("This deletes 1305 messages")
    assert asked.code == 130


@pytest.mark.parametrize(
    "body_and_told",
    every(
        5,
        [
            (b"\x20" * 9_000 + b"x" * 9_000, "…9000 blanks…xxx"),
            (b"\n" * 18_000, "…18000 blanks…"),
            (b" \r\n\t" * 4_500, "…18000 blanks…"),
            (b"\0" * 18_000, "…18000 blanks…"),
            (b"ab c " * 3_600, "… and 17200 more characters: --json has all"),
            (bytes(range(256)) * 70, "more characters: --json has all"),
        ],
    ),
    ids=["blanks first", "newlines", "white space", "NULs", "words", "all bytes"],
)
def test_a_long_message_does_not_fill_the_screen(
    golden_store: GoldenStore, tmp_path: Path, body_and_told: tuple[bytes, str]
) -> None:
    body, told = body_and_told
    store = golden_store("clean")
    (tmp_path / "body").write_bytes(body)
    stored = run(
        "append", "-s", store, "-t", "TopicTest", "--body-file", tmp_path / "body", "--property", "P=" + "y" * 9_000
    )
    assert stored.code == 0
    place = ["-o", "2135612"]
    file = store / "commitlog" / "00000000000002097152"
    commands: dict[str, list[str | Path]] = {
        "query": ["query", "-s", store, *place],
        "cat": ["cat", "-s", store, *place],
        "dump": ["dump", file, "--at", "38460"],
    }
    # the listing has 25 lines without properties and body, a field of a dump one line
    most = {"query": 48, "cat": 5, "dump": 45}
    for verb, command in commands.items():
        shown = rmqctl_on_a_terminal(*command)
        assert shown.code == 0
        rows = sum(max(1, -(-len(line) // 80)) for line in shown.screen)
        assert rows <= most[verb], (verb, shown.screen)
        assert sum(not line.strip() for line in shown.screen) <= 3
        if verb == "query":
            assert told in shown.sent
    piped = run("query", "-s", store, *place)
    assert "blanks…" not in piped.out


@pytest.mark.parametrize("answer", ["n\n", "y\n"])
def test_clean_says_how_many_messages_it_takes_away(golden_store: GoldenStore, answer: str) -> None:
    store = golden_store("clean")
    asked = rmqctl_on_a_terminal("clean", "-s", store, "--at-once", answer=answer)
    (question,) = [line for line in asked.screen if "[y/N]" in line]
    assert question.startswith("This removes 2449 messages in 22 files for good. Continue?")
    left = processes.run([sys.executable, "-m", "rmqctl", "cat", "-s", store, "--json"]).stdout.count("\n")
    assert left == (2500 if answer == "n\n" else 51)
    assert "8 commitlog files" in "\n".join(asked.screen)
    assert "of commitlog" not in asked.sent
