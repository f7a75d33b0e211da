"""Lines that a thread writes: in order, all of them where somebody reads, and nobody waits where nobody does."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from rmqctl.output.output import Beside


def test_lines_are_written_in_order_and_all_of_them_in_the_end() -> None:
    written: list[str] = []
    with Beside(written.append) as beside:
        for number in range(100):
            beside.say(f"line {number}")
    assert written == [f"line {number}" for number in range(100)]


def test_long_lines_are_cut() -> None:
    written: list[str] = []
    with Beside(written.append) as beside:
        beside.say("a" * 5000)
    assert written == ["a" * 4000 + "…"]


def test_what_goes_beyond_the_bound_is_counted() -> None:
    written: list[str] = []
    is_held = threading.Event()

    def write(line: str) -> None:
        is_held.wait(60)
        written.append(line)

    with Beside(write, most_waiting=3) as beside:
        beside.say("the one that is being written")
        while beside._waiting:
            pass
        for number in range(8):
            beside.say(f"line {number}")
        is_held.set()
    assert written[1:] == ["line 0", "line 1", "line 2", "5 lines dropped: stderr was not read"]


def test_nobody_waits_for_a_pipe_that_is_full_and_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "w") as stream:
        os.set_blocking(writing, False)
        while True:
            try:
                os.write(writing, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(writing, True)
        monkeypatch.setattr(sys, "stderr", stream)
        with Beside(lambda line: print(line, file=stream, flush=True)) as beside:
            beside.say("nobody reads this")
        assert os.read(reading, 1 << 20) == b"x" * (1 << 16)
