"""The progress bar shows only to a person, and only on work that lasts."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from rmqctl.output import terminal as module
from rmqctl.output.terminal import progress
from rmqctl.store import Message, MessageStore, StoreConfig
from tests.rmqctl.looking import run
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


class _Counting(module._Bar):
    """Notes each bar."""

    made: list[_Counting] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, label: str, total: module.Total, unit: str) -> None:
        super().__init__(label, total, unit)
        self.made.append(self)
        # at once: a command may remove what is counted
        self.wanted = total() if callable(total) else total

    @property
    def done(self) -> int:
        return self._done


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[_Counting]:
    monkeypatch.setattr(module, "_is_shown", lambda: True)
    monkeypatch.setattr(module, "SHOWN_AFTER", 1e9)
    monkeypatch.setattr(module, "_Bar", _Counting)
    monkeypatch.setattr(_Counting, "made", [])
    return _Counting.made


@pytest.fixture(params=["small", "large"])
def preallocated(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with zeros behind its messages and a file that was made ahead; large ones are walked on columns."""
    size = 1 << (18 if request.param == "small" else 30)
    path = tmp_path / "store"
    with MessageStore.open(path, "rw", StoreConfig(mapped_file_size_commit_log=size), create=True) as store:
        for number in range(60):
            store.put(Message(f"Topic{number % 2}", b"x" * 100, properties={"KEYS": f"k{number}"}))
    with (path / "commitlog" / f"{size:020d}").open("xb") as file:
        file.truncate(size)
    return path


_READ_ONCE = (
    ["info", "-s", "STORE"],
    ["du", "-s", "STORE"],
    ["check", "-s", "STORE"],
    ["predict", "-s", "STORE"],
    ["cat", "-s", "STORE", "--grep", "nothing"],
    ["query", "-s", "STORE", "-i", "NOTHING", "--scan"],
    ["export", "-s", "STORE", "OUT.jsonl"],
    ["export", "-s", "STORE", "OUT.parquet"],
    ["rebuild", "-s", "STORE", "--dry-run"],
    ["salvage", "STORE", "--to", "OUT"],
)
"""Each reads the whole log once."""


@pytest.mark.parametrize("command", _READ_ONCE, ids=" ".join)
def test_the_total_of_a_bar_is_the_end_of_the_log(
    preallocated: Path, bars: list[_Counting], command: list[str]
) -> None:
    with MessageStore.open(preallocated) as store:
        end = list(store.scan())[-1]
    written = end["physical_offset"][-1].as_py() + end["size"][-1].as_py()
    places = {"STORE": str(preallocated), "OUT": str(preallocated.parent / "out")}
    run(*(word.replace("STORE", places["STORE"]).replace("OUT", places["OUT"]) for word in command))
    assert [(bar.wanted, bar.done) for bar in bars] == [(written, written)]


@pytest.mark.parametrize("verify", [False, True])
def test_the_total_of_a_copy_is_what_its_files_take_on_disk(
    preallocated: Path, bars: list[_Counting], verify: bool
) -> None:
    target = preallocated.parent / "copy"
    run("snapshot", "-s", preallocated, target)
    if verify:
        run("snapshot", "--verify", target)
    bar = bars[-1]
    assert bar.wanted is not None
    # the manifest is not held against itself
    assert 0 <= bar.wanted - bar.done <= (1 << 16)
    assert bar.wanted < 1 << 24


def test_a_bar_never_passes_its_total(terminal: TerminalText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(module, "REFRESHED_EVERY", 0.0)
    _work(terminal, total=512)
    assert "512/512 bytes" in terminal.getvalue()
    assert "1000" not in terminal.getvalue()
