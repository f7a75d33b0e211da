"""Signals that end a command: one short line, a code of their own, and nothing that looks like a bug."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.output.outcome import concluded
from tests.processes import run


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """The tests themselves may have been started by nohup."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "its terminal was closed")],
)
def test_signals_that_end_a_command_are_one_short_line_and_their_own_codes(
    capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int, word: str
) -> None:
    before = signal.getsignal(number)

    def ended() -> int:
        os.kill(os.getpid(), number)
        time.sleep(60)
        return 0

    assert concluded(ended) == code
    assert capsys.readouterr().err == f"rmqctl: {word}\n"
    assert signal.getsignal(number) is before


def test_what_is_said_to_a_closed_terminal_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    def ended() -> int:
        try:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(60)
        finally:
            raise OSError(errno.EIO, "Input/output error")

    assert concluded(ended) == 129


def test_a_closed_terminal_is_nothing_to_what_nohup_has_started() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def hung_up() -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    try:
        assert concluded(hung_up) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_not_lost_in_a_finalizer(
    capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    class Last:
        def __del__(self) -> None:
            os.kill(os.getpid(), number)

    def ended() -> int:
        Last()
        time.sleep(60)
        return 0

    before = sys.unraisablehook
    assert concluded(ended) == code
    assert capsys.readouterr().err.count("\n") == 1
    assert sys.unraisablehook is before


def test_what_else_a_finalizer_raises_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))

    class Last:
        def __del__(self) -> None:
            raise LookupError

    def done() -> int:
        Last()
        return 0

    assert concluded(done) == 0
    assert told == [LookupError]


def test_a_signal_while_a_class_is_made_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    class Attribute:
        def __set_name__(self, owner: type, name: str) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)

    def made() -> int:
        type("Made", (), {"attribute": Attribute()})
        return 0

    assert concluded(made) == 130
    assert capsys.readouterr().err == "rmqctl: interrupted\n"


def test_ctrl_c_in_what_is_executed_leaves_the_exit_code(tmp_path: Path) -> None:
    """Python remembers it, and `python -m` would end by SIGINT."""
    (tmp_path / "interrupted.py").write_text(
        "import runpy\n"
        "import rmqctl.main\n"
        "from rmqctl.output.outcome import concluded\n"
        "rmqctl.main.main = lambda: concluded(lambda: exec('raise KeyboardInterrupt'))\n"
        "runpy.run_module('rmqctl', run_name='__main__')\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ended = run([sys.executable, "-m", "interrupted"], env={**os.environ, "PYTHONPATH": path})
    assert (ended.returncode, ended.stderr) == (130, "rmqctl: interrupted\n")
