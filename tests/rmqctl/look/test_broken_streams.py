"""Compressed bodies whose stream breaks off after a good start: commands that unpack them report that.

No command calls what such a body may hold absent.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from rmqctl.formats.layouts import SYS_FLAG_COMPRESSED
from rmqctl.store import Message, MessageStore, StoreConfig
from rmqctl.store.store_files import StoreFiles
from tests import processes
from tests.processes import start
from tests.rmqctl.looking import run


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a good message and one whose body breaks off; its CRC holds, so the producer sent it so."""
    store = tmp_path_factory.mktemp("broken") / "store"
    whole = zlib.compress(b"".join(hashlib.sha256(bytes([number])).digest() for number in range(20)))
    config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
    with MessageStore.open(store, "rw", config=config, create=True) as opened:
        opened.put(Message("T", b"good", properties={"KEYS": "k1"}))
        half = whole[: len(whole) // 2]
        opened.put(Message("T", half, properties={"KEYS": "k2"}, sys_flag=SYS_FLAG_COMPRESSED))
    return store


def test_a_plain_check_says_what_it_did_not_unpack(broken: Path) -> None:
    done = run("check", "-s", broken)
    assert (done.code, "1 compressed body not unpacked (--full)" in done.err) == (0, True)
    assert "Nothing is wrong" not in done.out
    assert done.out.startswith("No damage was found. 1 compressed body was not unpacked, so that can hide some.")
    assert f"next: rmqctl check --full -s {broken}" in done.out
    assert run("check", "-s", broken, "--json", "--summary").objects[-1]["summary"]["bodies_not_unpacked"] == 1
    full = run("check", "--full", "-s", broken)
    assert (full.code, "RMQ-LOG-020" in full.out, "not unpacked (--full)" in full.err) == (1, True, False)


@pytest.mark.parametrize("options", [(), ("-t", "T"), ("--json",), ("--order", "queue")], ids=" ".join)
def test_a_search_that_finds_nothing_is_not_certain(broken: Path, options: tuple[str, ...]) -> None:
    done = run("cat", "-s", broken, "--grep", "wanted", *options)
    assert done.code == 7
    assert "the body was not searched, because it does not unpack" in done.err


def test_a_search_that_finds_others_says_so_too(broken: Path) -> None:
    done = run("cat", "-s", broken, "--grep", "good", "--json")
    assert (done.code, len(done.objects)) == (1, 1)
    assert done.err.count("the body was not searched") == 1


def test_a_key_with_a_search(broken: Path) -> None:
    done = run("query", "-s", broken, "-k", "k2", "--grep", "wanted")
    assert (done.code, "the body was not searched" in done.err) == (7, True)
    assert run("query", "-s", broken, "-k", "k1", "--grep", "wanted").code == 1


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_an_export_reports_and_counts_it(broken: Path, tmp_path: Path, kind: str) -> None:
    done = run("export", "-s", broken, tmp_path / f"out.{kind}", "--json")
    assert (done.code, "unpack" in done.err or "zlib stream" in done.err) == (1, True)
    row = done.objects[0]
    assert (row["messages"], row["bodies_as_stored"], row["damaged_spans"]) == (2, 1, 0)
    columns = ("--columns", "topic,queue_offset")
    other = run("export", "-s", broken, tmp_path / f"other.{kind}", *columns, "--json")
    assert (other.code, other.objects[0]["bodies_as_stored"]) == (0, 0)
    nothing = run("export", "-s", broken, tmp_path / f"none.{kind}", "--grep", "wanted")
    assert (nothing.code, (tmp_path / f"none.{kind}").exists()) == (7, False)


def test_a_search_that_follows(broken: Path, tmp_path: Path) -> None:
    for wanted, before in (("0", 0), ("9", 1)):
        store = Path(shutil.copytree(broken, tmp_path / f"copy{wanted}"))
        command = [sys.executable, "-m", "rmqctl", "cat", "-s", str(store), "--grep", "wanted", "-f", "-n", wanted]
        with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
            time.sleep(3)
            with MessageStore.open(store, "rw") as opened:
                opened.put(Message("T", b"\x78\x9cbroken", sys_flag=SYS_FLAG_COMPRESSED))
                opened.put(Message("T", b"wanted"))
            assert following.stdout is not None
            lines = [following.stdout.readline() for _ in range(2)]  # the table's head, and what was wanted
            following.send_signal(signal.SIGINT)
            err = following.communicate(timeout=60)[1]
        assert "wanted" in lines[1]
        assert (following.returncode, err.count("the body was not searched")) == (1, 1 + before)


@pytest.mark.parametrize(
    ("statement", "bodies"),
    [
        ("select count(*) n from messages where contains(decode(body, 'replace'), 'wanted')", 1),
        ("select queue_offset, body from messages", 1),
        ("select * from messages where body = 'good'::blob", 1),
        ("select a.queue_offset from messages a join messages b on a.body = b.body", 1),
        ("select queue_offset, tags from messages", 0),
        ("select body from messages where keys[1] = 'k1' and queue_offset = 0", 0),
    ],
)
def test_sql_reports_bodies_that_it_read_as_stored(broken: Path, statement: str, bodies: int) -> None:
    done = run("sql", "-s", broken, statement, "--json")
    assert (done.code, done.err.count("the body does not unpack")) == (bodies, bodies), done.err


def test_sql_over_several_stores_reports_each(broken: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(broken, tmp_path / name)
    done = run("sql", "-s", tmp_path / "*", "select count(body) n from messages; select 1", "--json")
    assert (done.code, done.err.count("the body does not unpack")) == (1, 2)


@pytest.mark.parametrize("partition", [(), ("--partition",)], ids=["whole", "partition"])
def test_an_export_by_tasks_reports_and_counts_it(broken: Path, tmp_path: Path, partition: tuple[str, ...]) -> None:
    tasks = ("--master", "in-process", "--json", *partition)
    done = run("export", "-s", broken, tmp_path / "out", *tasks)
    assert (done.code, done.err.count("the body does not unpack")) == (1, 1)
    row = done.objects[0]
    assert (row["messages"], row["bodies_as_stored"], row["damaged_spans"]) == (2, 1, 0)
    some = run("export", "-s", broken, tmp_path / "some", "--grep", "good", *tasks)
    assert (some.code, some.objects[0]["bodies_as_stored"], some.objects[0]["damaged_spans"]) == (1, 0, 1)
    assert some.err.count("the body was not searched") == 1
    none = run("export", "-s", broken, tmp_path / "none", "--grep", "wanted", *tasks)
    assert (none.code, (tmp_path / "none").exists()) == (7, False)
    other = run("export", "-s", broken, tmp_path / "other", "--columns", "topic", *tasks)
    assert (other.code, other.objects[0]["bodies_as_stored"]) == (0, 0)


def test_a_task_of_the_source_logs_them(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark")
    from rmqctl.pipeline.spark.options import view_schema
    from rmqctl.pipeline.spark.planning import LogTask
    from rmqctl.pipeline.spark.split_task import SplitPartition, read_split
    from rmqctl.pipeline.splits import plan_splits
    from rmqctl.pipeline.wanted import Wanted

    with StoreFiles(broken) as files:
        (split,) = plan_splits(files)
    for names, is_said in ((["body"], True), (["topic"], False)):
        caplog.clear()
        rows = sum(
            batch.num_rows
            for batch in read_split(SplitPartition(LogTask(split), {}), view_schema("messages", names), Wanted())
        )
        assert (rows, "1 body does not unpack and is as stored" in caplog.text) == (2, is_said)


def test_a_task_of_the_source_fails_on_demand(broken: Path) -> None:
    pytest.importorskip("pyspark")
    from rmqctl.formats.errors import CorruptError
    from rmqctl.pipeline.spark.options import view_schema
    from rmqctl.pipeline.spark.planning import LogTask
    from rmqctl.pipeline.spark.split_task import SplitPartition, read_split
    from rmqctl.pipeline.splits import plan_splits
    from rmqctl.pipeline.wanted import Wanted

    with StoreFiles(broken) as files:
        (split,) = plan_splits(files)
    partition, schema = SplitPartition(LogTask(split), {}), view_schema("messages", ["body"])
    with pytest.raises(CorruptError, match="the body does not unpack"):
        list(read_split(partition, schema, Wanted(), fails_on_damage=True))
    # where bodies are not asked for, nothing is wrong
    topics = view_schema("messages", ["topic"])
    assert sum(batch.num_rows for batch in read_split(partition, topics, Wanted(), fails_on_damage=True)) == 2


@pytest.mark.jvm
@pytest.mark.turns("programs of Spark", 3)
def test_sql_on_spark_says_how_to_count_them(broken: Path) -> None:
    command = [sys.executable, "-m", "rmqctl", "sql", "-s", str(broken), "--master", "local[2]", "--json"]
    for statement, is_said in (
        ("select count(*) n from messages where body = cast('wanted' as binary)", True),
        ("select count(*) n from messages where body_error is not null", False),
    ):
        done = processes.run([*command, statement])
        assert ("note: bodies that do not unpack are read as stored" in done.stderr) is is_said
    assert '"n": 1' in done.stdout
