"""What a start reads until its store is recovered: exact bytes and files, and an estimated time."""

from __future__ import annotations

import pytest

from rmqctl.store.predict import predict
from rmqctl.store.predict.surroundings import recovery_work
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, truth

_FILE = 262_144


@pytest.mark.parametrize("broker", ["5.3.3", "4.9.8"])
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_bytes_from_the_start_file_to_the_end(golden_store: GoldenStore, name: str, broker: str) -> None:
    with StoreFiles(golden_store(name)) as files:
        found = predict(files, broker)
        queue_files = sum(len(queue.files.files) for queue in files.queues.all())
    assert found.recovery is not None
    assert found.start_offset is not None
    end = truth(name).summary["maxPhy"]
    assert found.recovery["log_bytes"] == end - found.start_offset
    assert found.recovery["log_files"] == end // _FILE - found.start_offset // _FILE + 1
    assert found.recovery["queue_files"] == queue_files > 0
    assert 0 < found.recovery["seconds_least"] < found.recovery["seconds_most"]


def test_no_recovery_where_the_start_ends_before(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "commitlog" / "stray").write_bytes(b"x")
    with StoreFiles(store) as files:
        found = predict(files, "5.3.3")
    assert (found.loads, found.recovery) == (False, None)


def test_200_000_queue_files() -> None:
    """48 s and 150 s were measured for them (apache/rocketmq#5091)."""
    work = recovery_work(0, 0, 200_000)
    assert (work.seconds_least, work.seconds_most) == (48, 150)


def test_a_terabyte() -> None:
    work = recovery_work(1_000_000_000_000, 0, 0)
    assert (work.seconds_least, work.seconds_most) == (2_000, 10_000)
