"""The rebuild job: byte for byte what `rmqctl.store.recover.rebuild` makes in one process, from every engine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import NotFoundError, RefusedError, RmqctlError, UsageError
from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs import rebuild as job
from rmqctl.pipeline.jobs.rebuild import KeyRange, key_ranges, rebuild_with
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.rebuild import rebuild, report_row
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, broker_conf, golden, is_broken
from tests.pipeline.engines import OTHER_ENGINES, bytes_below, engine_named
from tests.quick import every, goldens_of, sample
from tests.store.light_queues import CONFIG, runs_ahead
from tests.store.recover.test_rebuild import WHOLE

SPLIT = 20_000
STORES = [name for name in GOLDENS if not is_broken(name) and name != "rocksdb"]
STORES += ["gap", "crc-flip-old", "v4-crc-flip-old", "cq-truncated", "first-gone", "torn-zero", "short-middle"]


def config_of(name: str, folder: Path) -> StoreConfig:
    """The settings of a golden that cannot be seen from its files."""
    return read_broker_conf(broker_conf(name, folder)) if name == "multipath" else StoreConfig()


def rebuilt(name: str, folder: Path, engine: Any, **options: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """A golden after its rebuild, and the report; without an engine in one process."""
    store = golden(name, folder)
    with StoreFiles(store, config_of(name, folder)) as files:
        if engine is None:
            row = report_row(rebuild(files, **options))
        else:
            row = report_row(rebuild_with(engine, files, split_size=SPLIT, **options))
    row["journal"] = row["journal"] is not None
    left = {path.name for path in folder.rglob("*") if "scratch" in path.name or "going" in path.name}
    assert left == set()
    found = bytes_below(store)
    shutil.rmtree(folder)
    return found, row


@pytest.mark.parametrize("name", sample(STORES, ["features", "gap"]))
def test_goldens_come_out_as_from_one_process(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_BUCKET", 100_000)
    assert rebuilt(name, tmp_path / "job", LocalEngine(1)) == rebuilt(name, tmp_path / "store", None)


@pytest.mark.parametrize("other", OTHER_ENGINES)
@pytest.mark.parametrize("name", every(3, ["features", "lmq", "innerbatch"]))
def test_every_engine_makes_the_same(name: str, other: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Transactions, delays, several keys, several queues of a message, batches."""
    made = [rebuilt(name, tmp_path / engine, engine_named(engine, request)) for engine in ("inline", other)]
    assert made[0] == made[1]


@pytest.mark.parametrize("name", goldens_of(name for name in WHOLE if name in STORES))
def test_queues_are_those_of_the_broker(name: str, tmp_path: Path) -> None:
    store = golden(name, tmp_path)
    before = _queues(store)
    with StoreFiles(store, read_broker_conf(broker_conf(name, tmp_path))) as files:
        rebuild_with(LocalEngine(1), files, split_size=SPLIT, index=False)
    assert _queues(store) == before


def test_a_light_queue_whose_offsets_run_ahead_comes_out_as_it_was(tmp_path: Path) -> None:
    queue = runs_ahead(tmp_path / "store")
    before = queue.read_bytes()
    for is_lost in (False, True):
        if is_lost:
            shutil.rmtree(tmp_path / "store" / "consumequeue")
        with StoreFiles(tmp_path / "store", CONFIG) as files:
            rebuild_with(LocalEngine(1), files, split_size=300)
        assert queue.read_bytes() == before


def _queues(store: Path) -> dict[str, str]:
    return {path: digest for path, digest in bytes_below(store).items() if "consumequeue" in path}


@pytest.mark.parametrize(
    "options",
    [
        {"queues": False},
        {"index": False},
        {"index": False, "topics": ["BigQueues", "OrderTopic"]},
        {"change": ChangeOptions(dry_run=True)},
        {"change": ChangeOptions(keep_undo=False)},
    ],
)
def test_options_mean_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    job_made, job_report = rebuilt("cq-truncated", tmp_path / "job", LocalEngine(1), **options)
    store_made, store_report = rebuilt("cq-truncated", tmp_path / "store", None, **options)
    assert job_report == store_report
    assert job_made == store_made


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("clean", {"topics": ["BigQueues"]}, UsageError),
        ("clean", {"index": False, "topics": ["none such"]}, NotFoundError),
        ("log-gone", {}, RefusedError),
        ("rocksdb", {}, RmqctlError),
    ],
)
def test_refused_alike_and_nothing_is_left(
    name: str, options: dict[str, Any], error: type[RmqctlError], tmp_path: Path
) -> None:
    store = golden(name, tmp_path)
    before = bytes_below(tmp_path)
    with StoreFiles(store) as files, pytest.raises(error):
        rebuild_with(LocalEngine(1), files, split_size=SPLIT, **options)
    after = bytes_below(tmp_path)
    after.pop(f"{name}/lock", None)
    before.pop(f"{name}/lock", None)
    assert after == before


def test_keys_are_cut_into_files_by_prefix_sums() -> None:
    asides = [("a", 3), ("b", 0), ("c", 7), ("d", 1)]
    assert list(key_ranges(asides, 4)) == [
        [KeyRange("a", 0, 3), KeyRange("c", 0, 1)],
        [KeyRange("c", 1, 5)],
        [KeyRange("c", 5, 7), KeyRange("d", 0, 1)],
    ]
    assert list(key_ranges([], 4)) == list(key_ranges([("a", 0)], 4)) == []
