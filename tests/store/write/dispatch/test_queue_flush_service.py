"""The flush of consume queues and the checkpoint behind it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rmqctl.store.write.dispatch import CheckpointKeeper, QueueFlushService


class SlowFlusher:
    """Its first flush lasts until it is let go."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def flush(self, _is_thorough: bool) -> bool:
        if not self.began.is_set():
            self.began.set()
            assert self.may_end.wait(120)
        return True


def test_a_slow_flush_does_not_set_the_checkpoint_back(tmp_path: Path) -> None:
    flusher, keeper = SlowFlusher(), CheckpointKeeper(tmp_path / "checkpoint")
    follower = SimpleNamespace(last_offset=-1, last_timestamp=1, position=1, index_timestamp=0)
    log_flusher = SimpleNamespace(flushed_timestamp=1, flushed_offset=1)
    unwired: list[Any] = [flusher, log_flusher, follower]
    service = QueueFlushService((1000, 60_000), unwired[0], unwired[1], unwired[2], keeper, cast(Any, None))
    at_an_interval, at_the_end = threading.Thread(target=service.flush), threading.Thread(target=service.flush)
    at_an_interval.start()
    assert flusher.began.wait(120)
    follower.last_timestamp = 2
    at_the_end.start()
    time.sleep(0.2)
    flusher.may_end.set()
    at_an_interval.join()
    at_the_end.join()
    assert keeper.values.logics_msg_timestamp == 2


class Writer:
    """A service over a writer whose log, queues and disk go on while queues are flushed."""

    def __init__(self, folder: Path, *, is_all: bool = True) -> None:
        self.follower = SimpleNamespace(last_offset=-1, last_timestamp=1, position=100, index_timestamp=0)
        self.log_flusher = SimpleNamespace(flushed_timestamp=1, flushed_offset=100)
        self.keeper = CheckpointKeeper(folder / "checkpoint")
        self.is_all = is_all
        unwired: list[Any] = [SimpleNamespace(flush=self._flush), self.log_flusher, self.follower]
        self.service = QueueFlushService(
            (1000, 60_000), unwired[0], unwired[1], unwired[2], self.keeper, cast(Any, None)
        )

    def _flush(self, _is_thorough: bool) -> bool:
        self.follower.last_timestamp, self.follower.position = 2, 200
        self.log_flusher.flushed_timestamp, self.log_flusher.flushed_offset = 2, 200
        return self.is_all

    def times(self) -> tuple[int, int]:
        """Those of log and queues that a recovery would go by."""
        self.service.flush_queues()
        return self.keeper.values.physic_msg_timestamp, self.keeper.values.logics_msg_timestamp


def test_what_comes_while_queues_are_flushed_is_not_called_flushed(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    assert writer.times() == (1, 1)
    assert writer.times() == (2, 2)


def test_queues_that_are_left_dirty_are_not_called_flushed(tmp_path: Path) -> None:
    writer = Writer(tmp_path, is_all=False)
    assert writer.times() == (1, 0)
    writer.is_all = True
    assert writer.times() == (2, 2)


def test_a_message_from_the_past_holds_the_times_back_until_log_and_queues_have_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.keeper.lower(1, 150)
    # not flushed yet: the log, then the queues, then some of the queues
    writer.follower.position, writer.follower.last_timestamp, writer.log_flusher.flushed_timestamp = 200, 2, 2
    assert writer.times() == (1, 1)
    writer.follower.position, writer.log_flusher.flushed_offset = 100, 200
    assert writer.times() == (1, 1)
    writer.is_all = False
    assert writer.times() == (1, 1)
    writer.is_all = True
    assert writer.times() == (2, 2)
