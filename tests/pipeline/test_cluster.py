"""A real cluster of which a machine goes off in the middle of the work: nobody can tell from what is written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.goldens import golden
from tests.pipeline.cluster import Cluster, wait_for
from tests.pipeline.driver import ROOT
from tests.pipeline.engines import bytes_below

# many small splits: there is a middle of the work to go off in
SPLIT = 8_000
STORE = "clean"
_PATIENCE = 240


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", 2) as started:
        yield started


def start(job: str, folder: Path, master: str, *settings: str) -> subprocess.Popen[str]:
    """The driver at work on a copy of its own."""
    store = golden(STORE, folder)
    arguments = map(str, (job, store, folder / "out", master, SPLIT, *settings))
    command = [sys.executable, "-m", "tests.pipeline.driver", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def finished(driver: subprocess.Popen[str]) -> None:
    _, said = driver.communicate(timeout=_PATIENCE)
    assert driver.returncode == 0, said


def attempts(folder: Path) -> int:
    """Files that tasks have begun so far."""
    return sum(1 for path in folder.rglob("*") if path.name.startswith(("implied.", "aside.")))


@pytest.mark.parametrize("job", ["rebuild", "export"])
def test_a_worker_and_its_executor_are_killed_in_the_middle(job: str, tmp_path: Path, cluster: Cluster) -> None:
    finished(start(job, tmp_path / "processes", "processes"))
    expected = outcome(tmp_path / "processes")
    driver = start(job, tmp_path / "spark", cluster.url)
    wait_for(lambda: driver.poll() is not None or attempts(tmp_path / "spark") >= 10)
    assert driver.poll() is None, driver.communicate()
    assert all(cluster.has_executor(number) for number in range(2))
    cluster.kill_worker(0)
    assert attempts(tmp_path / "spark") > 0
    finished(driver)
    assert outcome(tmp_path / "spark") == expected


def test_a_cluster_that_gives_no_executor_is_not_waited_for_forever(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", 1) as cluster:
        driver = start(
            "rebuild", tmp_path / "spark", cluster.url, "spark.executor.memory=64g", "spark.rmqctl.executorWait=3"
        )
        _, said = driver.communicate(timeout=_PATIENCE)
    assert driver.returncode != 0
    assert "EngineError: the cluster has given no executor for 3 seconds" in said
    assert {path.name for path in (tmp_path / "spark").iterdir()} == {STORE}


def outcome(folder: Path) -> dict[str, str]:
    """All that is there afterwards but for what differs from run to run: the journal, which has its time for a name."""
    for journal in folder.glob("*.rmqctl/*"):
        assert {path.name for path in journal.iterdir()} >= {"journal.json", "moved"}
        assert not any("scratch" in path.name for path in journal.rglob("*"))
        shutil.rmtree(journal)
    return bytes_below(folder)
