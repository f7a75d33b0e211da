"""Both engines: order, errors, progress, and what they leave behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.pipeline.engine import Engine, LocalEngine, beside
from tests.pipeline.engines import ENGINES, engine_named
from tests.processes import start

ROOT = Path(__file__).parents[3]


def doubled(number: int) -> int:
    time.sleep(0.01 * (number % 3))
    return 2 * number


def bad_at(bad: int, folder: Path, number: int) -> int:
    if number == bad:
        (folder / f"try-{time.time_ns()}").touch()
        raise CorruptError("no good", file="/some/file", physical_offset=77, hint="look")
    return number


def where(_: int) -> int:
    return os.getpid()


def buggy(number: int) -> int:
    return 1 // (number - 2)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_named(request.param, request)


def test_results_come_in_the_order_of_the_items(engine: Engine) -> None:
    told: list[int] = []
    assert engine.run("doubling", doubled, range(20), told.append) == [2 * number for number in range(20)]
    assert sum(told) == 20
    assert engine.run("nothing", doubled, []) == []


def test_an_error_of_a_task_arrives_with_its_place_and_is_not_tried_again(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(CorruptError) as caught:
        engine.run("failing", partial(bad_at, 3, tmp_path), range(6))
    error = caught.value
    assert (error.file, error.physical_offset, error.hint) == ("/some/file", 77, "look")
    assert error.message == "no good"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_bug_in_a_task_is_not_taken_for_an_answer(engine: Engine) -> None:
    with pytest.raises(Exception, match=r"ZeroDivisionError|division"):
        engine.run("buggy", buggy, range(6))
    assert engine.run("doubling", doubled, [4]) == [8]


def test_an_item_alone_is_done_where_code_is_loaded() -> None:
    here = LocalEngine(2, alone_for=1e-9)
    assert here.run("where", where, [0]) == here.run("where", where, [0]) == [os.getpid()]
    elsewhere = LocalEngine(2, alone_for=0)
    first = elsewhere.run("where", where, [0])
    assert first != [os.getpid()]
    assert elsewhere.run("where", where, [0]) == first


def test_processes_are_kept_for_other_tasks_and_end_with_the_engine() -> None:
    engine = LocalEngine(2, alone_for=0)
    before = set(engine.run("where", where, range(40)))
    assert engine.run("doubling", doubled, range(5)) == [0, 2, 4, 6, 8]
    assert set(engine.run("where", where, range(40))) <= before == _children(os.getpid()) & before
    engine.close()
    assert not _children(os.getpid()) & before


def test_no_process_outlives_an_error_or_an_engine_that_nobody_has() -> None:
    engine = LocalEngine(2, alone_for=0)
    before = set(engine.run("where", where, range(40)))
    with pytest.raises(ZeroDivisionError):
        engine.run("buggy", buggy, range(6))
    assert not _children(os.getpid()) & before
    after = set(engine.run("where", where, range(40)))
    assert after == _children(os.getpid()) & after
    del engine
    gc.collect()
    assert not _children(os.getpid()) & after


def test_a_task_beside_the_work_of_this_process(tmp_path: Path) -> None:
    with beside(where, 0) as found:
        assert found() != os.getpid()
    with beside(partial(bad_at, 1, tmp_path), 1) as found, pytest.raises(CorruptError, match="no good"):
        found()
    with pytest.raises(KeyboardInterrupt), beside(time.sleep, 600):
        raise KeyboardInterrupt


def test_short_work_is_done_in_this_process() -> None:
    told: list[int] = []
    engine = LocalEngine(2, alone_for=600)
    assert engine.run("where", where, range(3), told.append) == [os.getpid()] * 3
    assert told == [1, 1, 1]


def test_what_is_left_of_long_work_is_done_in_processes() -> None:
    told: list[int] = []
    engine = LocalEngine(2, alone_for=1e-9)
    first, *rest = engine.run("where", where, range(4), told.append)
    assert first == os.getpid()
    assert first not in rest
    assert told == [1, 1, 1, 1]
    assert os.getpid() not in engine.run("where", where, range(2))


_SLEEPERS = """
import sys, time
from rmqctl.pipeline.engine import LocalEngine
print("begun", flush=True)
LocalEngine(2, alone_for=0).run("sleeping", time.sleep, [600, 600])
"""


def _children(process: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process:
                found.add(int(entry.name))
    return found


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_at_once_with_whoever_started_them(sent: signal.Signals) -> None:
    command = [sys.executable, "-c", _SLEEPERS]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as caller:
        assert caller.stdout is not None
        caller.stdout.readline()
        deadline = time.monotonic() + 120
        while len(workers := _children(caller.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        begun = time.monotonic()
        caller.send_signal(sent)
        caller.wait(100)
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            assert time.monotonic() < begun + 100  # of the ten minutes that they would sleep
            time.sleep(0.05)
