"""How queries end before their time: what reads for them ends, too, and what they spilled goes with the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rmqctl.pipeline.sql import arrow_views as module
from rmqctl.pipeline.sql.duckdb import embedded_sql
from tests.opened import store_path
from tests.processes import start
from tests.quick import sample

_SPILLING = """
import sys
from rmqctl.pipeline.sql.duckdb import embedded_sql
with embedded_sql(sys.argv[1], memory="120MB") as views:
    views.answer("select count(*) from (select md5(a::varchar) m, row_number() over (order by md5(a::varchar)) n"
                 " from range(200000000) t(a)) where n % 7 = 3")
"""


def _spilled(folder: Path) -> bool:
    return any(path.is_file() and path.stat().st_size > 0 for path in folder.rglob("*.tmp"))


@pytest.mark.parametrize("number", sample([signal.SIGKILL, signal.SIGINT], [signal.SIGKILL]))
def test_what_was_spilled_goes_with_the_process(tmp_path: Path, number: signal.Signals) -> None:
    with start(
        [sys.executable, "-c", _SPILLING, str(store_path("clean"))],
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.DEVNULL,
    ) as process:
        while not _spilled(tmp_path) and process.poll() is None:
            time.sleep(0.02)
        assert process.poll() is None
        process.send_signal(number)
    for _ in range(3000):
        if not list(tmp_path.iterdir()):
            break
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


class _Pressed(KeyboardInterrupt):
    """Ctrl-C, as the thread that waits has it."""


@pytest.mark.parametrize("view", sample(["messages", "findings", "topics"], ["messages"]))
def test_what_reads_for_a_query_ends_with_it(monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    reading, ended = threading.Event(), threading.Event()
    passed = module.Reading.passed

    def slow(self: module.Reading, size: int) -> None:
        """As on a log that takes hours: it goes on until somebody stops it."""
        reading.set()
        while True:
            try:
                passed(self, size)
            except module.Interrupted:
                ended.set()
                raise
            time.sleep(0.01)

    monkeypatch.setattr(module.Reading, "passed", slow)
    with embedded_sql(str(store_path("clean"))) as views:
        _press_ctrl_c_when(monkeypatch, reading)
        with pytest.raises(_Pressed):
            views.answer(f"select * from {view}")
        assert ended.is_set()
        monkeypatch.undo()
        assert views.answer(f"select count(*) from {view}").num_rows == 1


def _press_ctrl_c_when(monkeypatch: pytest.MonkeyPatch, reading: threading.Event) -> None:
    wait = threading.Event.wait
    pressed = threading.Event()

    def waiting(self: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread() and reading.is_set() and not pressed.is_set():
            pressed.set()
            raise _Pressed
        return wait(self, timeout)

    monkeypatch.setattr(threading.Event, "wait", waiting)
