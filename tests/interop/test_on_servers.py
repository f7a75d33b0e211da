"""Stores on a real server of S3 and a real HDFS are told as the same stores on this machine."""

from __future__ import annotations

import glob
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.files import remote as address
from rmqctl.store.files import remote_files as shadow
from rmqctl.store.files.remote_file_system import FsspecFiles
from rmqctl.store.message_store import MessageStore
from tests.interop.store_servers import BUCKET, CREDENTIAL, IDENTITY, hdfs, s3_server
from tests.interop.toolchain import REPOSITORY, Unavailable, hadoop_library
from tests.opened import store_path
from tests.processes import run as run_process
from tests.rmqctl.looking import run

pytestmark = pytest.mark.interop

NAMES = ("crash", "crc-flip-third")
LOOKS: list[list[object]] = [
    ["cat", "--json"],
    ["cat", "-n", -7],
    ["query", "-k", "hot"],
    ["check", "--full", "--json"],
    ["groups", "--json"],
    ["predict", "--json"],
    ["stats", "--json"],  # processes of their own
    ["sql", "select topic, count(*), sum(body_size) from messages group by all order by all"],
]


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Any]:
    """The stores in a bucket; fsspec's file system with it. The environment leads there."""
    with s3_server(tmp_path / "s3") as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", IDENTITY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIAL)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        system: Any = FsspecFiles(f"s3://{BUCKET}")._system
        for name in NAMES:
            system.put(f"{store_path(name)}/", f"{BUCKET}/{name}/", recursive=True)
        yield system
        _forget()


@pytest.fixture
def webhdfs(tmp_path: Path) -> Iterator[str]:
    """The address of the stores in HDFS."""
    copied = [(store_path(name), f"/stores/{name}") for name in NAMES]
    with hdfs(tmp_path / "hdfs", *copied) as (port, _, _):
        yield f"webhdfs://127.0.0.1:{port}/stores"
        _forget()


def _forget() -> None:
    for one in tuple(shadow._shadows.values()):
        one.close()


def _assert_same(store: Path, place: str, command: list[object]) -> None:
    here, there = run(command[0], "-s", store, *command[1:]), run(command[0], "-s", place, *command[1:])
    assert there.code == here.code, (command, there.err)
    assert _without_times(there.out) == _without_times(here.out, store, place), command


def _without_times(told: str, store: Path | None = None, place: str = "") -> list[str]:
    """What is told, with another place for the store. A file that was copied to a server was modified then."""
    lines = [line for line in told.splitlines() if "RMQ-TIME-001" not in line]
    return lines if store is None else [line.replace(str(store), place) for line in lines]


def test_s3(s3: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, command in ((name, command) for name in NAMES for command in LOOKS):
        _assert_same(store_path(name), f"s3://{BUCKET}/{name}", command)
    _assert_pattern(f"s3://{BUCKET}")
    _assert_exported(f"s3://{BUCKET}/out", tmp_path)
    assert len(s3.find(f"{BUCKET}/out/parts")) == 12  # one a topic
    _assert_replaced_is_not_read(s3)
    _assert_refusals_are_told(monkeypatch)


def test_hdfs(webhdfs: str, tmp_path: Path) -> None:
    for name, command in ((name, command) for name in NAMES for command in LOOKS):
        _assert_same(store_path(name), f"{webhdfs}/{name}", command)
    _assert_pattern(webhdfs)
    _assert_exported(f"{webhdfs}/out", tmp_path)


_LOOKS_THERE = """
import json, sys
from tests.rmqctl.looking import run
for command in json.loads(sys.argv[2]):
    done = run(command[0], "-s", sys.argv[1], *command[1:])
    print(json.dumps([done.code, done.out, done.err]))
"""


def test_hdfs_by_its_own_protocol(tmp_path: Path) -> None:
    """In a process of its own: with Hadoop's library comes a JVM."""
    try:
        library = hadoop_library()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with hdfs(tmp_path / "hdfs", (store_path("crash"), "/stores/crash")) as (_, port, tools):
        parts = tools.classpath.split(os.pathsep)
        jars = [glob.glob(f"{part}.jar") if part.endswith("*") else [part] for part in parts]
        environment = {
            **os.environ,
            "ARROW_LIBHDFS_DIR": str(library),
            "JAVA_HOME": str(tools.java.parents[1]),
            "CLASSPATH": os.pathsep.join(itertools.chain.from_iterable(jars)),
            "HADOOP_USER_NAME": "root",
        }
        place = f"hdfs://127.0.0.1:{port}/stores/crash"
        command = [sys.executable, "-c", _LOOKS_THERE, place, json.dumps(LOOKS)]
        done = run_process(command, cwd=REPOSITORY, env=environment)
    assert done.returncode == 0, done.stderr
    for look, line in zip(LOOKS, done.stdout.splitlines(), strict=True):
        code, told, errors = json.loads(line)
        here = run(look[0], "-s", store_path("crash"), *look[1:])
        assert (code, _without_times(told)) == (here.code, _without_times(here.out, store_path("crash"), place)), (
            look,
            errors,
        )


def _count(name: str) -> int:
    done = run("sql", "-s", store_path(name), "select count(*) n from messages", "--json")
    return int(done.objects[0]["n"])


def _assert_pattern(above: str) -> None:
    """The stores in a folder, both of them by one pattern."""
    counting = "select store, count(*) messages from messages group by 1 order by 1"
    done = run("sql", "-s", f"{above}/cr[a-c]*", counting, "--json")
    assert done.code == exit_codes.OK, done
    assert {row["store"]: row["messages"] for row in done.objects} == {f"{above}/{one}": _count(one) for one in NAMES}
    done = run("sql", "-s", f"{above}/*/none", counting)
    assert (done.code, f"{above}/* matches " in done.err) == (exit_codes.UNREADABLE, True), done


def _assert_exported(folder: str, tmp_path: Path) -> None:
    here = tmp_path / "here.jsonl"
    assert run("export", here, "-s", store_path("crash")).code == exit_codes.OK
    target = f"{folder}/there.jsonl"
    done = run("export", target, "-s", store_path("crash"), "--json")
    assert done.code == exit_codes.OK, done
    assert json.loads(done.out)["path"] == target
    assert address.reachable_loose(target).read_bytes() == here.read_bytes()
    assert run("export", target, "-s", store_path("crash")).code == exit_codes.REFUSED
    done = run("export", f"{folder}/parts", "-s", store_path("crash"), "--partition", "--format", "parquet")
    assert done.code == exit_codes.OK, done


def _assert_replaced_is_not_read(s3: Any) -> None:
    s3.put(f"{store_path('crash')}/", f"{BUCKET}/replaced/", recursive=True)
    with MessageStore.open(f"s3://{BUCKET}/replaced") as store:
        s3.pipe(f"{BUCKET}/replaced/commitlog/00000000000000000000", bytes(1 << 18))
        with pytest.raises(UnreadableError, match=f"s3://{BUCKET}/replaced/commitlog/0+: was replaced"):
            store.reader.lookup(0)
        s3.rm_file(f"{BUCKET}/replaced/commitlog/00000000000000262144")
        with pytest.raises(UnreadableError, match="was removed while the store was read"):
            store.files.log.files[1].read(0, 10)


def _assert_refusals_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("cat", "-s", f"s3://{BUCKET}/nothing")
    assert (done.code, "there is nothing at this address" in done.err) == (exit_codes.UNREADABLE, True)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    done = run("cat", "-s", f"s3a://{BUCKET}/crash")
    assert (done.code, "the server refuses to show it" in done.err) == (exit_codes.UNREADABLE, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    done = run("cat", "-s", f"s3n://{BUCKET}/crash")
    assert (done.code, "asked 5 times" in done.err) == (exit_codes.UNREADABLE, True)


_JOB = """
import sys
from pyspark_rocketmq import findings, storage_options
from rmqctl.pipeline.spark.session import spark_session
settings = dict(pair.split("=", 1) for pair in sys.argv[2:])
with spark_session("local[1]", settings) as session:
    read = session.read.format("rocketmq").option("storage_options", storage_options(session))
    print(read.load(sys.argv[1]).groupBy("topic").count().orderBy("topic").collect())
    several = sys.argv[1].rpartition("/")[0] + "/cr[a-c]*"
    stream = session.readStream.format("rocketmq").option("storage_options", storage_options(session)).load(several)
    query = stream.select("store").writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
    query.awaitTermination()
    print([tuple(row) for row in session.sql("select store, count(*) from rows group by 1 order by 1").collect()])
    found = findings(session, sys.argv[1], storage_options=storage_options(session))
    print(sorted({row.file for row in found.where("code = 'RMQ-CQ-002'").collect()}))
"""


@pytest.mark.jvm
def test_on_spark_with_the_settings_of_its_session(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    hadoop = {
        "endpoint": endpoint.removeprefix("http://"),
        "connection.ssl.enabled": "false",
        "access.key": IDENTITY,
        "secret.key": CREDENTIAL,
        "path.style.access": "true",
    }
    settings = [f"spark.hadoop.fs.s3a.{name}={value}" for name, value in hadoop.items()]
    done = run_process([sys.executable, "-c", _JOB, f"s3a://{BUCKET}/crash", *settings])
    assert done.returncode == 0, done.stderr
    counted = run(
        "sql", "-s", store_path("crash"), "select topic, count(*) n from messages group by 1 order by 1", "--json"
    )
    expected = [f"Row(topic='{row['topic']}', count={row['n']})" for row in counted.objects]
    assert done.stdout.splitlines()[0] == f"[{', '.join(expected)}]"
    assert done.stdout.splitlines()[1] == str([(f"s3a://{BUCKET}/{name}", _count(name)) for name in NAMES])
    assert f"s3a://{BUCKET}/crash/commitlog/" in done.stdout.splitlines()[2]
