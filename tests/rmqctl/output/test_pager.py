"""Long text goes through a pager: on a terminal of 40 lines, and nowhere else."""

from __future__ import annotations

import os
import sys

import pytest

from rmqctl.output import terminal
from tests import processes
from tests.opened import store_path
from tests.quick import sample
from tests.terminal import Shown, TerminalText, on_a_terminal

MARKS = "sed s/^/P:/"


def shown(*arguments: str, by: str = MARKS) -> Shown:
    return on_a_terminal([sys.executable, "-m", "rmqctl", *arguments], pager=by)


def paged(shown: Shown) -> list[str]:
    return [line for line in shown.screen if line.startswith("P:")]


CAT = ["cat", "-s", str(store_path("clean")), "-n"]


def test_what_is_longer_than_the_screen_is_paged_whole() -> None:
    long = shown(*CAT, "60")
    assert long.code == 0
    assert len(paged(long)) == 62  # with two lines of header
    short = shown(*CAT, "20")
    # and a line that names the columns left out
    assert (short.code, paged(short), len([line for line in short.screen if line])) == (0, [], 23)


@pytest.mark.thorough
@pytest.mark.parametrize("how", [["--no-pager"], ["--follow"]])
def test_nobody_is_paged_who_does_not_want_it(how: list[str]) -> None:
    assert paged(shown(*CAT, "60", *how)) == []
    assert paged(shown("--no-pager", *CAT, "60")) == []


@pytest.mark.parametrize("none", sample(["", "cat"], [""]))
def test_no_pager_is_named(none: str) -> None:
    assert len([line for line in shown(*CAT, "60", by=none).screen if line]) == 63


def test_a_pipe_is_never_paged() -> None:
    ended = processes.run([sys.executable, "-m", "rmqctl", *CAT, "60"], env=os.environ | {"PAGER": MARKS})
    assert "P:" not in ended.stdout


def test_help_is_paged() -> None:
    assert len(paged(shown("help", "cat"))) > 40
    assert len(paged(shown("cat", "--help"))) > 40
    assert paged(shown("--version")) == []


def test_what_is_said_on_stderr_follows_the_pager() -> None:
    check = ["check", "-s", str(store_path("gap")), "--all"]
    found = shown(*check)
    assert found.code == 1
    assert found.screen.index(paged(found)[-1]) < next(
        number for number, line in enumerate(found.screen) if line.startswith("1 error, 32 warnings")
    )


def test_a_pager_that_is_left_at_once_is_no_error() -> None:
    found = shown("cat", "-s", str(store_path("clean")), by="head -3")
    assert (found.code, len([line for line in found.screen if line])) == (0, 3)


@pytest.mark.thorough
def test_a_pager_that_is_not_there_loses_nothing_but_the_page() -> None:
    assert shown(*CAT, "60", by="no-such-pager-anywhere").code == 0
    assert shown(*CAT, "20", by="no-such-pager-anywhere").code == 0


@pytest.mark.thorough
def test_less_is_asked_to_leave_short_texts_and_colours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shown(*CAT, "60", by="env | grep ^LESS")
    assert {"LESS=FRX", "LESSCHARSET=utf-8"} <= set(found.screen)
    monkeypatch.setenv("LESS", "R")
    assert "LESS=R" in shown(*CAT, "60", by="env | grep ^LESS").screen


def test_less_is_the_one_if_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGER", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert terminal.pager_command() == "less"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert terminal.pager_command() is None


def test_a_bar_comes_back_when_the_pager_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = TerminalText()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PAGER", "cat > /dev/null")
    monkeypatch.setattr(terminal, "SHOWN_AFTER", 0.0)

    def drawn() -> bool:
        before = len(screen.getvalue())
        with terminal.progress("scan", 10) as bar:
            bar.advance()
        return len(screen.getvalue()) > before

    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", TerminalText())
    with terminal.paged(True):
        print("line\n" * 100)
        assert not drawn()
    assert drawn()
