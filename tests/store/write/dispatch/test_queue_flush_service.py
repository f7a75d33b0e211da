"""The flush of consume queues and the checkpoint behind it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rmqctl.store.write.dispatch.checkpoint_keeper import CheckpointKeeper
from rmqctl.store.write.dispatch.queue_flush_service import QueueFlushService


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
    follower = SimpleNamespace(last_timestamp=1, position=1, index_timestamp=0)
    log_flusher = SimpleNamespace(flushed_timestamp=1, flushed_offset=1)
    unwired: list[Any] = [flusher, log_flusher, follower]
    service = QueueFlushService(1000, unwired[0], unwired[1], unwired[2], keeper, cast(Any, None))
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
