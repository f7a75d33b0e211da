"""What is 5.5.0's own in a start: the sixth long of the checkpoint, the most files that it reads, its RocksDB."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.output import outcome
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.message_store import MessageStore
from rmqctl.store.predict import Prediction, predict
from rmqctl.store.predict.compatibility import differences
from rmqctl.store.predict.prediction import NO_LOGICS_OFFSET
from rmqctl.store.store_files import Checkpoint, StoreFiles, write_checkpoint
from tests.goldens import GoldenStore
from tests.rmqctl.looking import run

MOST_FILES = "commitLogRecoverMaxNum"


def _predicted(store: Path, config: StoreConfig | None = None, version: str = "5.5.0") -> Prediction:
    with StoreFiles(store, config) as files:
        return predict(files, version)


def test_which_messages_stay_out_of_the_queues_and_the_setting_that_helps(golden_store: GoldenStore) -> None:
    store = golden_store("v55-max2-crash")
    found = _predicted(store, StoreConfig(commit_log_recover_max_num=2))
    assert found.messages_unqueued == sum(row["messages"] for row in found.unqueued) == 249
    first = next(row for row in found.unqueued if (row["topic"], row["queue_id"]) == ("TopicTest", 0))
    assert first == {
        "topic": "TopicTest", "queue_id": 0, "messages": 7, "first_offset": 44, "last_offset": 50,
        "physical_offset": 905787,
    }  # fmt: skip
    assert found.is_harmful
    [said] = [text for text in found.warnings if MOST_FILES in text]
    assert f"{MOST_FILES}=3 " in said
    helped = _predicted(store, StoreConfig(commit_log_recover_max_num=3))
    assert (helped.messages_unqueued, helped.unqueued) == (0, [])
    assert not any(MOST_FILES in text for text in helped.warnings)


def test_the_default_is_10_files_and_what_is_not_positive_too(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    file = max((store / "commitlog").iterdir())
    for number in range(3):
        # files that were made ahead count as well
        (store / "commitlog" / f"{int(file.name) + (number + 1) * 262144:020d}").write_bytes(bytes(262144))
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    starts = {
        most: _predicted(store, config_from_properties({MOST_FILES: most})).start_offset
        for most in ("0", "-1", "10", "11", "12")
    }
    assert starts == {"0": 524288, "-1": 524288, "10": 524288, "11": 262144, "12": 0}
    older = _predicted(store, version="5.3.3")
    assert (older.start_offset, older.unqueued) == (0, [])


def _crashed(store: Path, logics_offset: int) -> None:
    with StoreFiles(store) as files:
        checkpoint = files.checkpoint()
    assert checkpoint is not None
    write_checkpoint(
        store / "checkpoint", checkpoint._replace(physic_msg_timestamp=1, logics_physical_offset=logics_offset)
    )


@pytest.mark.parametrize(
    ("logics_offset", "error"),
    [
        (0, "java.lang.RuntimeException: Accelerated recovery is enabled but checkpoint's logicsPhysicalOffset is"),
        (1 << 40, "java.lang.IllegalArgumentException: newPosition > limit: (1099510579200 > 262144)"),
    ],
)
def test_acceleration_that_stops_the_start(golden_store: GoldenStore, logics_offset: int, error: str) -> None:
    store = golden_store("v55-crash")
    _crashed(store, logics_offset)
    assert _predicted(store).loads
    found = _predicted(store, StoreConfig(enable_accelerated_recovery=True))
    assert not found.loads
    assert error in str(found.error)
    # the index is loaded before
    assert found.index_files_deleted == _predicted(store).index_files_deleted != []


def test_acceleration_reads_from_the_sixth_long_on(golden_store: GoldenStore) -> None:
    store = golden_store("v55-crash")
    slow, fast = (_predicted(store, StoreConfig(enable_accelerated_recovery=on)) for on in (False, True))
    assert slow.recovery is not None
    assert fast.recovery is not None
    assert 0 < fast.recovery["log_bytes"] < slow.recovery["log_bytes"]
    assert (fast.end_offset, fast.queues_changed) == (slow.end_offset, slow.queues_changed)


def test_a_crashed_store_of_an_older_version_is_to_be_started_by_it_first(golden_store: GoldenStore) -> None:
    assert NO_LOGICS_OFFSET in _predicted(golden_store("v55-of-533-crash")).warnings
    for name in ("v55-crash", "v55-of-533-clean"):
        assert NO_LOGICS_OFFSET not in _predicted(golden_store(name)).warnings


def test_nothing_is_said_of_a_time_that_leaves_out_no_file(golden_store: GoldenStore) -> None:
    """A young store of 5.5.0: its queues were never flushed whole, so all of the log is read."""
    store = golden_store("v55-crash")
    write_checkpoint(store / "checkpoint", Checkpoint())
    assert NO_LOGICS_OFFSET not in _predicted(store).warnings
    with StoreFiles(store) as files:
        assert "checkpoint" not in {row.part for row in differences(files, "5.5.0")}


def test_the_rocksdb_that_it_makes_is_told(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    assert [text for text in _predicted(store).warnings if "this start makes rocksdbstore/" in text]
    assert _predicted(golden_store("v55-clean")).warnings == []
    assert _predicted(store, version="5.3.3").warnings == []


@pytest.mark.parametrize(
    ("name", "version"),
    [("v55-crash", "5.5.0"), ("v55-of-533-crash", "5.3.3"), ("clean", "5.3.3"), ("v4-clean", "4.9.8")],
)
def test_the_default_is_the_newest_version_that_the_files_fit(
    golden_store: GoldenStore, name: str, version: str
) -> None:
    store = golden_store(name)
    with MessageStore.open(store) as opened:
        assert opened.predict().broker == version
    assert run("predict", "-s", store, "--json").objects[0]["broker"] == version


def test_all_versions_side_by_side(golden_store: GoldenStore) -> None:
    store = golden_store("crc-flip-third")
    found = run("predict", "-s", store, "--broker", "all", "--json")
    rows = {row["broker"]: row for row in found.objects}
    assert list(rows) == ["4.9.8", "5.3.3", "5.5.0"]
    # only 4.9.8 looks at the damage
    assert {name: (row["is_harmful"], row["messages_lost"] > 0) for name, row in rows.items()} == {
        "4.9.8": (True, True), "5.3.3": (False, False), "5.5.0": (False, False)
    }  # fmt: skip
    assert found.code == outcome.DAMAGE_OR_NOTHING
    for version, row in rows.items():
        [alone] = run("predict", "-s", store, "--broker", version, "--json").objects
        assert alone.items() <= row.items()
    table = run("predict", "-s", store, "--broker", "all")
    assert [line.split()[:2] for line in table.out.splitlines()[1:]] == [[name, "yes"] for name in rows]
    assert "5.5.0: this start makes rocksdbstore/" in table.err


def test_a_version_whose_start_is_not_predicted_is_a_row_too(golden_store: GoldenStore) -> None:
    store = golden_store("v55-crash")
    conf = store.parent / "broker.conf"
    conf.write_text("forceVerifyPropCRC=true\n")
    found = run("predict", "-s", store, "-c", conf, "--broker", "all", "--json")
    assert [row["is_harmful"] is None for row in found.objects] == [False, True, True]
    assert "forceVerifyPropCRC" in json.dumps(found.objects[2]["why"])
    conf.write_text("enableDLegerCommitLog=true\nstorePathDLedgerCommitLog=/data\n")
    assert run("predict", "-s", store, "-c", conf, "--broker", "all").code == outcome.REFUSED


@pytest.mark.parametrize("setting", ["indexRocksDBEnable", "transRocksDBEnable"])
def test_recovery_begins_where_rocksdb_has_nothing(golden_store: GoldenStore, setting: str) -> None:
    store = golden_store("v55-crash")
    first = min(int(path.name) for path in (store / "commitlog").iterdir())
    starts = [_predicted(store, config_from_properties({setting: is_on})).start_offset for is_on in ("true", "false")]
    assert starts[0] == first != starts[1]
