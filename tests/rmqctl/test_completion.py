"""Completion scripts, and what they ask rmqctl for."""

from __future__ import annotations

import shutil

import pytest

from rmqctl.commands.completion import SHELLS, script
from rmqctl.main import VERBS, main
from tests.processes import run


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert shown == script(shell)
    assert f"_RMQCTL_COMPLETE={shell}_complete" in shown


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_accepts_the_script(shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    ended = run([found, "-n"], input=script(shell))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rmqctl ", list(VERBS)),
        ("rmqctl re", ["recover", "rebuild", "repair", "resume"]),
        ("rmqctl --ver", ["--version"]),
        ("rmqctl completion ", list(SHELLS)),
        ("rmqctl completion z", ["zsh"]),
    ],
)
def test_what_is_offered(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split(" ")
    monkeypatch.setenv("_RMQCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert main([]) == 0
    assert [offer.partition(",")[2] for offer in capsys.readouterr().out.split()] == expected
