"""`export` and `rebuild` with --master, as a user starts them: results, exit codes, and what Ctrl-C leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import processes
from tests.goldens import GoldenStore
from tests.pipeline.engines import bytes_below


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "rmqctl", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return processes.run(command(*arguments))


def test_export(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The one test with a JVM of the quick run."""
    store = golden_store("crc-flip-old")
    before = bytes_below(store)
    ended = run("export", "-s", store, tmp_path / "lake", "--master", "local[2]", "--partition", "--json")
    assert ended.returncode == 1
    row = json.loads(ended.stdout)
    assert (row["messages"], row["damaged_spans"], row["format"]) == (2499, 1, "parquet")
    assert row["files"] == row["partitions"] == len(list((tmp_path / "lake").rglob("part-0.parquet")))
    assert ended.stderr.startswith("damage: ")
    assert ended.stderr.count("\n") == 1
    assert bytes_below(store) == before


@pytest.mark.jvm
def test_rebuild(golden_store: GoldenStore) -> None:
    store, other = golden_store("cq-truncated"), golden_store("cq-truncated")
    ended = run("rebuild", "-s", store, "--master", "local[2]", "--json")
    plain = run("rebuild", "-s", other, "--json")
    assert (ended.returncode, plain.returncode) == (0, 0)
    journal = json.loads(ended.stdout).pop("journal")
    assert json.loads(ended.stdout) | {"journal": 0} == json.loads(plain.stdout) | {"journal": 0}
    assert bytes_below(store) == bytes_below(other)
    assert {path.name for path in Path(journal).iterdir()} >= {"journal.json", "moved"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["out.csv", "--master", "local[1]"], 2, "parquet or arrow"),
        (["out", "--master", "local[1]", "--overwrite"], 2, "--overwrite"),
        (["out", "--conf", "a=b"], 2, "--master"),
        (["out", "--master", "local[1]", "--conf", "a"], 2, "no setting"),
        (["out", "--master", "local[1]", "--columns", "nothing"], 2, "no column"),
        (["out", "--master", "spark://127.0.0.1:1"], 5, "there is no Spark"),
    ],
)
def test_refused_before_spark_starts(
    arguments: list[str], code: int, said: str, golden_store: GoldenStore, tmp_path: Path
) -> None:
    store = golden_store("features")
    begun = time.monotonic()
    ended = run("export", "-s", store, tmp_path / arguments[0], *arguments[1:])
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr
    assert time.monotonic() - begun < 200  # nobody waits for what is not there
    assert not any(path.name.startswith(("out", ".out")) for path in tmp_path.iterdir())


@pytest.mark.jvm
@pytest.mark.parametrize("verb", ["export", "rebuild"])
def test_ctrl_c_leaves_nothing_half_done(verb: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    store = golden_store("clean")
    before = bytes_below(store)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = [tmp_path / "lake", "--partition"] if verb == "export" else []
    with processes.start(
        command(verb, "-s", store, "--master", "local[2]", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.rglob("*scratch*")) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate()
    assert (process.returncode, said, errors) == (130, "", "rmqctl: interrupted\n")
    after = bytes_below(store)
    assert after.pop("lock", None) in (before.pop("lock", None), after.get("lock"))
    assert after == before
    assert [path.name for path in tmp_path.iterdir() if "lake" in path.name] == []
    assert not store.with_name("clean.rmqctl").exists()
    assert [path.name for path in temporary.iterdir() if not path.name.startswith("hsperfdata")] == []


def _started_with(text: str) -> list[str]:
    """Return the command lines with `text` of all processes."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in lines if text in line]


@pytest.mark.jvm
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="/proc shows the processes")
def test_ctrl_c_while_the_jvm_starts_leaves_no_process(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Without the folder for its answer it would never end."""
    arguments = command("export", "-s", golden_store("clean"), "--master", "local[2]", tmp_path / "lake", "--partition")
    with processes.start(
        arguments, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as one:
        deadline = time.monotonic() + 120
        while not (begun := _started_with(f"-Djava.io.tmpdir={tmp_path}")) and one.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        one.send_signal(signal.SIGINT)
        _, errors = one.communicate()
    assert begun
    assert (one.returncode, errors) == (130, "rmqctl: interrupted\n")
    while left := _started_with(f"-Djava.io.tmpdir={tmp_path}"):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
