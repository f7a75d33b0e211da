"""A real cluster: commands answer as without it, and nobody can tell if a machine goes off in the middle of the work.

All tests share one cluster, because starting it takes longer than most of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import processes
from tests.goldens import GoldenStore, golden
from tests.opened import store_path
from tests.pipeline.cluster import Cluster, wait_for
from tests.pipeline.driver import ROOT
from tests.pipeline.engines import bytes_below
from tests.rmqctl.looking import Done, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

# many small splits: there is a middle of the work to go off in
SPLIT = 30_000
STORE = "clean"
FAULTS = Path(__file__).with_name("faults")
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executorEnv.PYTHONPATH": f"{FAULTS}:{ROOT}",
}
QUERIES = {
    "select * from messages order by physical_offset": "crc-flip-old",
    "select q.* from consumequeue q left anti join messages m using (physical_offset) order by physical_offset": "gap",
    "select topc from messages": "clean",
}
"""Each with the store that is asked."""


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("spark") / "cluster", 2) as started:
        yield started


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster with both workers, whatever another test did to them."""
    shared_cluster.fill()
    return shared_cluster


def start(job: str, folder: Path, master: str, *settings: str) -> subprocess.Popen[str]:
    """The driver at work on a copy of its own."""
    store = golden(STORE, folder)
    arguments = map(str, (job, store, folder / "out", master, SPLIT, *settings))
    command = [sys.executable, "-m", "tests.pipeline.driver", *arguments]
    return processes.start(command, stderr=subprocess.PIPE, text=True)


def finished(driver: subprocess.Popen[str]) -> None:
    _, said = driver.communicate()
    assert driver.returncode == 0, said


def attempts(folder: Path) -> int:
    """Files that tasks have begun so far."""
    return sum(1 for path in folder.rglob("*") if path.name.startswith(("implied.", "aside.")))


@pytest.mark.parametrize("job", ["rebuild", "export"])
def test_a_worker_and_its_executor_are_killed_in_the_middle(job: str, tmp_path: Path, cluster: Cluster) -> None:
    # in the same place: exported files name the store that they come from
    folder = tmp_path / "work"
    finished(start(job, folder, "processes"))
    expected = outcome(folder)
    shutil.rmtree(folder)
    driver = start(job, folder, cluster.url)
    wait_for(lambda: driver.poll() is not None or attempts(folder) >= 10)
    assert driver.poll() is None, driver.communicate()
    assert cluster.has_executors()
    cluster.kill_a_worker()
    assert attempts(folder) > 0
    finished(driver)
    assert outcome(folder) == expected


def test_a_cluster_that_gives_no_executor_is_not_waited_for_forever(tmp_path: Path, cluster: Cluster) -> None:
    driver = start(
        "rebuild", tmp_path / "spark", cluster.url, "spark.executor.memory=64g", "spark.rmqctl.executorWait=3"
    )
    _, said = driver.communicate()
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


def plain_lines() -> list[list[str]]:
    """Command lines about whole and broken stores that can be answered without Spark, too."""
    paths = {name: str(store_path(name)) for name in ("clean", "crc-flip-old", "gap")}
    return [
        ["check", "-s", paths["crc-flip-old"], "--full", "--json"],
        ["stats", "-s", paths["gap"], "--by", "queue,tag,host,hour", "--format", "csv"],
        ["diff", paths["clean"], paths["gap"], "--content", "--json"],
    ]


def queries() -> list[list[str]]:
    return [
        ["sql", "-s", str(store_path(name)), "--split-size", "100k", "--json", query] for query, name in QUERIES.items()
    ]


class Answers(NamedTuple):
    """What commands answered on the cluster: those about whole and broken stores, and those about `store`, of which the
    executors cannot read the file `bad` as the settings `faults` say."""

    plain: list[Done]
    queries: list[Done]
    failing: list[Done]
    store: Path
    bad: Path
    faults: dict[str, str]


def failing_lines(store: Path) -> list[list[str]]:
    return [["stats", "-s", str(store)], ["diff", str(store_path("clean")), str(store)], ["check", "-s", str(store)]]


@pytest.fixture(scope="module")
def answers(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """All in one session, because starting it takes longer than they do."""
    shared_cluster.fill()
    store = golden("clean", tmp_path_factory.mktemp("bad"))
    bad = sorted((store / "commitlog").iterdir())[2]
    faults = {"FAULTY_FILE": str(bad), "FAULTY_FROM": "100000"}
    settings = SETTINGS | {f"spark.executorEnv.{name}": value for name, value in faults.items()}
    lines = [
        *plain_lines(),
        *queries(),
        *failing_lines(store),
        ["sql", "-s", str(store), "select max(size) from messages"],
    ]
    ended = processes.run(
        [sys.executable, "-m", "tests.pipeline.session_commands", shared_cluster.url, *map("=".join, settings.items())],
        input=json.dumps([[*line, "--master", shared_cluster.url] for line in lines]),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    found = [Done(*one) for one in json.loads(ended.stdout)]
    first, second = len(plain_lines()), len(plain_lines()) + len(QUERIES)
    return Answers(found[:first], found[first:second], found[second:], store, bad, faults)


def test_commands_answer_as_without_spark(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    for line, found in zip(plain_lines(), answers.plain, strict=True):
        assert found == run(*line, "--master", "in-process"), line
        if line[0] == "check":
            assert found == run(*line), line
    assert [one.code for one in answers.plain] == [1, 1, 1]
    assert all(one.out for one in answers.plain)


def test_queries_answer_as_on_this_machine(answers: Answers, spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2]"
    for line, found in zip(queries(), answers.queries, strict=True):
        assert found == run(*line, "--master", "local[2]"), line
    assert [one.code for one in answers.queries] == [0, 0, 2]
    assert all(one.out for one in answers.queries[:-1])


def test_a_task_that_cannot_read_names_file_and_place(answers: Answers) -> None:
    """A bad disk under one file, for the executors and for processes of this machine: the same words and exit code."""
    environment = {**os.environ, **answers.faults, "PYTHONPATH": f"{FAULTS}:{ROOT}"}
    for line, one in zip(failing_lines(answers.store), answers.failing, strict=False):
        command = [sys.executable, "-m", "rmqctl", *line, "--master", "in-process"]
        ended = processes.run(command, env=environment)
        assert one == (ended.returncode, ended.stdout, ended.stderr), line
    said = f"rmqctl: {answers.bad}: cannot be read at byte 98304: Input/output error"
    stats, diff, check, query = answers.failing
    for one in (stats, diff, query):
        assert (one.code, one.out, one.err.splitlines()[0]) == (3, "", said)
    # a check goes on behind the file, and keeps what was read before it
    assert check.code == 1
    assert "1 error, 0 warnings" in check.out + check.err


@pytest.mark.parametrize("verb", ["stats", "sql"])
def test_ctrl_c_ends_the_work_of_the_executors(
    verb: str, cluster: Cluster, golden_store: GoldenStore, tmp_path: Path
) -> None:
    store = golden_store("clean")
    before = bytes_below(store)
    marks, temporary = tmp_path / "marks", tmp_path / "temporary"
    marks.mkdir()
    temporary.mkdir()
    slow = {"SLOW_STORE": str(store), "SLOW_SECONDS": "1", "SLOW_MARKS": str(marks)}
    settings = SETTINGS | {f"spark.executorEnv.{name}": value for name, value in slow.items()}
    query = ["select sum(size) from messages"] if verb == "sql" else []
    command = [sys.executable, "-m", "rmqctl", verb, "-s", str(store), *query, "--master", cluster.url]
    with processes.start(
        command + [word for pair in settings.items() for word in ("--conf", "=".join(pair))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        wait_for(lambda: process.poll() is not None or len(list(marks.iterdir())) >= 2)
        # as a terminal does it: to everybody who was started
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate()
    assert (process.returncode, said, errors) == (130, "", "rmqctl: interrupted\n")
    wait_for(lambda: not cluster.processes_of_executors())
    assert [path.name for path in temporary.iterdir() if not path.name.startswith("hsperfdata")] == []
    assert bytes_below(store) == before
