"""The Chinese documents: the same commands and code as in the English ones, and sessions that print what they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.test_documents import Session, held, sessions, steady

ENGLISH = {"README.md": "README.md", "quickstart.md": "docs/quickstart.md", "cookbook.md": "docs/cookbook.md"}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _text(name: str) -> str:
    return (ROOT / "docs/zh" / name).read_text(encoding="utf-8")


def _code(text: str) -> list[tuple[str, list[str]]]:
    """The blocks of code without comments, of sessions the commands alone."""
    blocks = []
    for kind, block in _BLOCK.findall(text):
        lines = [line for line in block.splitlines() if kind != "console" or line.startswith("$ ")]
        blocks.append((kind, [re.sub(r"\s+# .*$", "", line) for line in lines]))
    return blocks


@pytest.mark.parametrize("name", ENGLISH)
def test_commands_and_code_are_the_same(name: str) -> None:
    english = _code((ROOT / ENGLISH[name]).read_text(encoding="utf-8"))
    assert _code(_text(name)) == english
    assert len(english) >= 3


@pytest.mark.parametrize("name", ENGLISH)
def test_they_have_the_same_parts(name: str) -> None:
    """A heading, a row of a table and a command in the text of one has its counterpart in the other."""
    english = (ROOT / ENGLISH[name]).read_text(encoding="utf-8")
    # the Chinese README says more of languages
    more = 1 if name == "README.md" else 0
    assert len(re.findall(r"^#+ ", _text(name), re.MULTILINE)) == len(re.findall(r"^#+ ", english, re.MULTILINE)) + more
    assert len(re.findall(r"^\|", _text(name), re.MULTILINE)) == len(re.findall(r"^\|", english, re.MULTILINE))
    commands = [set(re.findall(r"`(rmqctl [^`]*)`", steady(text))) for text in (english, _text(name))]
    assert commands[0] - commands[1] == set()


SESSIONS = [session for name in ENGLISH for session in sessions(_text(name))]


def test_every_session_has_its_store() -> None:
    assert len(SESSIONS) == sum(_text(name).count("```console") for name in ENGLISH) == 4


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The command of these sources."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "rmqctl"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m rmqctl "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.golden)
def test_sessions_print_what_they_say(
    session: Session, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(command.startswith("rmqctl sql") for command, _ in session.steps):
        pytest.importorskip("duckdb")
    monkeypatch.setenv("RMQCTL_LANG", "zh")
    for (command, said), printed in zip(session.steps, held(session, tmp_path, programs), strict=True):
        assert steady(printed) == steady(said), command
