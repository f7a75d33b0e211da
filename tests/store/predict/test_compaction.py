"""Copies of compacted topics that a killed broker left: whether the next one loads them, as the real ones did."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store import MessageStore, StoreConfig
from rmqctl.store.predict.predicting import predict
from rmqctl.store.predict.prediction import Prediction
from tests.goldens import LogGolden, log_golden

_TOPIC = "CompactTopic"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> LogGolden:
    return log_golden("v55-compacted", tmp_path_factory.mktemp("compacted"))


def _files(store: Path, kind: str) -> list[Path]:
    return sorted((store / "compaction" / kind / _TOPIC / "0").glob("0*"))


def _being_written(store: Path) -> None:
    for kind in ("compactionLog", "compactionCq"):
        folder = _files(store, kind)[0].parent / "compacting"
        folder.mkdir()
        shutil.copy(_files(store, kind)[0], folder)


def _renamed_logs(store: Path) -> None:
    for path in _files(store, "compactionLog")[:-1]:
        path.rename(f"{path}.delete")


def _renamed_queues(store: Path) -> None:
    for path in _files(store, "compactionCq")[:-1]:
        path.rename(f"{path}.delete")


def _moved_logs(store: Path) -> None:
    path = _files(store, "compactionLog")[0]
    path.unlink()


def _moved_queues(store: Path) -> None:
    _files(store, "compactionCq")[0].unlink()


def _short(store: Path) -> None:
    path = _files(store, "compactionLog")[0]
    path.write_bytes(path.read_bytes()[:-1])


def _no_queues(store: Path) -> None:
    shutil.rmtree(_files(store, "compactionCq")[0].parent)


def _not_a_number(store: Path) -> None:
    (store / "compaction/compactionLog" / _TOPIC / "zero").mkdir()


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (_being_written, None),
        (_no_queues, None),
        (_renamed_logs, 'compactionLog CompactTopic:0 exception: For input string: "00000000000000000000.delete"'),
        (_renamed_queues, '.delete"'),
        (_moved_logs, "consumeQueue file mismatch with log file"),
        (_moved_queues, "log file mismatch with consumeQueue file"),
        (_short, "load log exception"),
        (_not_a_number, 'For input string: "zero"'),
    ],
)
def test_what_a_compaction_left(
    golden: LogGolden, tmp_path: Path, left: Callable[[Path], None], said: str | None
) -> None:
    store = golden.copied_to(tmp_path / "store")
    left(store)
    for version in ("5.3.3", "5.5.0"):
        start = _start(store, version)
        assert (start.loads, start.error is None) == (said is None, said is None), start.error
        assert said is None or said in (start.error or "")
    assert "compactionLog" not in (_start(store, "4.9.8").error or "")
    assert _start(store, "5.5.0", StoreConfig(enable_compaction=False)).loads


def _start(store: Path, version: str, config: StoreConfig | None = None) -> Prediction:
    with MessageStore.open(store, config=config or StoreConfig()) as opened:
        return predict(opened.files, broker=version)
