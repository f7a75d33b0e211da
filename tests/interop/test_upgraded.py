"""What `predict` says of a start of each line on the stores of the others, against that start; and `predict --to`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.predict.compatibility import differences
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import broker_conf, golden, properties, truth
from tests.interop import harness
from tests.interop.harness import NEWEST, VERSIONS, BrokerView, Job
from tests.interop.starts import differences as differences_of
from tests.interop.starts import simulated

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("newest")]


@pytest.fixture(scope="module")
def newest() -> None:
    """RocketMQ 5.5.0 is ready; else the test is skipped (in CI a failing fetch is an error)."""
    reason = harness.available(NEWEST)
    if reason is not None:
        pytest.skip(reason)


def _predicted(store: Path, config: StoreConfig) -> set[tuple[str, str]]:
    with StoreFiles(store, config) as files:
        return {(row.effect, row.part) for row in differences(files, NEWEST)}


def _in_queues(name: str) -> set[int]:
    """Return the messages that queues led to where the store was written: half messages, for one, have no unit."""
    return {row["phyOffset"] for row in truth(name).messages if has_queue_slot(row["sysFlag"])}


def _changed(view: BrokerView) -> set[str]:
    """Return which files came, went or changed, without the directory of the RocksDB that 5.5.0 makes."""
    before, after = view.files_before, view.files_after
    names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return {name for name in names if not name.startswith("rocksdbstore/")}


OF_LINES = (
    "v498s-clean", "v498s-crash", "v533s-clean", "v533s-crash", "v55-clean", "v55-crash", "v55-max2-crash",
    "v55-cq-lost-abort", "v55-accelerated-crash", "v55-crc-flip-third-abort",
)  # fmt: skip


@pytest.mark.usefixtures("rocketmq")
@pytest.mark.parametrize("version", VERSIONS)
def test_each_line_starts_on_the_stores_of_all_lines_as_predicted(tmp_path: Path, version: str) -> None:
    predictions, jobs = [], []
    for name in OF_LINES:
        store = golden(name, tmp_path)
        predictions.append(simulated(store, read_broker_conf(broker_conf(name, tmp_path)), version))
        jobs.append(Job(store, properties(name)))
    wrong = {}
    for name, (start, found), view in zip(OF_LINES, predictions, harness.open_many(version, jobs), strict=True):
        assert found.loads, name
        if said := differences_of(start, found, view):
            wrong[name] = said
    assert wrong == {}


@pytest.mark.parametrize("name", ["v4-clean", "clean", "v4-features", "features"])
def test_a_closed_store_is_served_whole_and_keeps_its_files(tmp_path: Path, name: str) -> None:
    store, config = golden(name, tmp_path), read_broker_conf(broker_conf(name, tmp_path))
    # entries of tags are the one thing that such a store lacks
    assert _predicted(store, config) == {("changed", "index")}
    view = harness.open_store(NEWEST, store, properties(name))
    assert (view.load_ok, view.exception, view.drained) == (True, None, True)
    assert set(view.by_physical_offset()) == _in_queues(name)
    changed = _changed(view)
    assert changed <= {"checkpoint", "lock", "abort", "abort.bak"}, changed
    assert any(path.startswith("rocksdbstore/") for path in view.files_after)


@pytest.mark.parametrize("name", ["crash", "cq-lost-abort"])
def test_a_crashed_store_is_to_be_recovered_first(tmp_path: Path, name: str) -> None:
    """5.5.0 goes by a time that can be ahead of the queues: what is lost depends on them, and nothing is afterwards."""
    kept: dict[bool, bool] = {}
    for is_recovered in (False, True):
        folder = tmp_path / str(is_recovered)
        folder.mkdir()
        store, config = golden(name, folder), read_broker_conf(broker_conf(name, folder))
        if is_recovered:
            with StoreFiles(store, config) as files:
                recover(files)
        assert (("lost", "checkpoint") in _predicted(store, config)) is not is_recovered
        view = harness.open_store(NEWEST, store, properties(name))
        assert (view.load_ok, view.exception) == (True, None)
        kept[is_recovered] = set(view.by_physical_offset()) >= _in_queues("crash" if name == "crash" else "clean")
    assert kept == {False: name == "crash", True: True}
