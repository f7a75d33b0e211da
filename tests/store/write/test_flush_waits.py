"""Who is told of a flush that failed, and of bytes that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.commitlog.append import PooledSink
from rmqctl.store.commitlog.flush import FlushService
from rmqctl.store.files import io
from tests.store.write.test_flush import Disk, Log
from tests.store.write.writing import small, wait_until


def test_a_failed_flush_is_told_to_those_alone_whose_bytes_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(io, "observer", disk)
    log = Log(tmp_path)
    failures: list[BaseException] = []
    service = FlushService(log.flusher, log.sink, small(), failures.append)
    log.append(10)
    service.flush_now()
    log.append(5)
    disk.is_broken = True
    with pytest.raises(WriteFailedError):
        service.flush_now()
    assert len(failures) == 1
    assert service.wait_for(10)
    with pytest.raises(WriteFailedError, match="may be lost"):
        service.wait_for(11)


def test_who_reads_is_told_of_each_commit(tmp_path: Path) -> None:
    log = Log(tmp_path, PooledSink(1 << 20))
    told: list[int] = []
    config = small(transient_store_pool_enable=True, flush_interval_commit_log=10**7)
    service = FlushService(log.flusher, log.sink, config, told.append)  # type: ignore[arg-type]  # is not called
    service.listener = lambda: told.append(log.files.files[-1].committed_position)
    log.append(10)
    service.start()
    wait_until(lambda: bool(told))
    service.stop()
    assert told[0] == 10
