"""The progress bar shows only to a person, and only on work that lasts."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr

import pytest

from rmqctl.output import progress as module
from rmqctl.output.progress import progress
from tests.terminal import TerminalText


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> TerminalText:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return TerminalText()


def _work(stream: io.StringIO | None, total: int | None = 1000, unit: str = "bytes") -> None:
    with redirect_stderr(stream), progress("scan [bold]\x1b[31m", total, unit) as bar:
        for _ in range(10):
            bar.advance(100)


def test_short_work_shows_nothing(terminal: TerminalText) -> None:
    _work(terminal)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("unit", "total", "count"), [("bytes", 4096, "KiB"), ("messages", 1000, "/1000"), ("bytes", None, "")]
)
def test_long_work_shows_its_label_and_count(
    terminal: TerminalText, monkeypatch: pytest.MonkeyPatch, unit: str, total: int | None, count: str
) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(module, "REFRESHED_EVERY", 0.0)
    _work(terminal, total=total, unit=unit)
    shown = terminal.getvalue()
    assert r"scan [bold]\x1b[31m" in shown
    assert count in shown
    assert ("messages" in shown) == (unit == "messages")


def test_the_cursor_comes_back_after_an_error(terminal: TerminalText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER", 0.0)

    def fail() -> None:
        with progress("scan", 10) as bar:
            bar.advance()
            raise KeyboardInterrupt

    with redirect_stderr(terminal):
        with pytest.raises(KeyboardInterrupt):
            fail()
        assert sys.stderr is terminal
    assert "\x1b[?25l" in terminal.getvalue()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_stdout_is_not_touched_while_a_bar_shows(
    terminal: TerminalText, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER", 0.0)
    with redirect_stderr(terminal), progress("scan", 10) as bar:
        bar.advance()
        sys.stdout.write("data\n")
    assert "scan" in terminal.getvalue()
    assert capsys.readouterr().out == "data\n"
    assert "data" not in terminal.getvalue()


@pytest.mark.parametrize("reason", ["piped", "dumb", "closed"])
def test_nothing_where_nobody_could_see_it(
    terminal: TerminalText, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER", 0.0)
    stream: io.StringIO | None = terminal
    if reason == "piped":
        stream = io.StringIO()
    elif reason == "closed":
        stream = None
    else:
        monkeypatch.setenv("TERM", "dumb")
    _work(stream)
    assert stream is None or stream.getvalue() == ""
