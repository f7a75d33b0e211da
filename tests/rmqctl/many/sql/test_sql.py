"""`rmqctl sql`: tables, JSON Lines, CSV and files, each way it can go wrong, and the prompt; on Spark but little. That
both engines have the same answers is tested in tests/pipeline/embedded/."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from rmqctl.output import outcome as exit_codes
from rmqctl.sql_prompt import history_file
from tests.goldens import GoldenStore, tree_state, truth
from tests.opened import store_path
from tests.processes import start
from tests.rmqctl.looking import Done, run

COUNTS = "select topic, count(*) n from messages group by topic order by topic"


def _sql(*arguments: object, store: str = "clean") -> Done:
    return run("sql", "-s", store_path(store), *arguments)


@pytest.mark.parametrize("name", ["clean", "crc-flip-old"])
def test_json(name: str) -> None:
    done = _sql("--json", COUNTS, store=name)
    assert (done.code, done.err) == (0, "")
    wanted = Counter(str(row["topic"]) for row in truth("clean").messages)
    if name == "crc-flip-old":
        (damaged,) = (row for row in truth("clean").messages if row["phyOffset"] == 402516)
        wanted[str(damaged["topic"])] -= 1
    assert done.objects == [{"topic": topic, "n": wanted[topic]} for topic in sorted(wanted)]


def test_a_table() -> None:
    done = _sql("select topic, count(*) n, max(store_timestamp) last from messages where topic = 'a' group by 1")
    assert done.code == 0
    last = max(int(row["storeTimestamp"]) for row in truth("clean").messages if row["topic"] == "a")
    assert done.out.splitlines()[0].split() == ["topic", "n", "last"]
    assert done.out.splitlines()[1].split()[:2] == ["a", "207"]
    assert done.out.splitlines()[1].split()[2].startswith("2026-11-20T23:29:36.")
    assert str(last % 1000) in done.out


def test_csv() -> None:
    done = _sql("--format", "csv", "select topic, keys, body from messages order by physical_offset limit 20")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    wanted = truth("clean").messages[:20]
    assert [row["topic"] for row in rows] == [row["topic"] for row in wanted]
    assert all(json.loads(row["keys"]) == str(true["properties"].get("KEYS", "")).split()
               for row, true in zip(rows, wanted, strict=True))  # fmt: skip


def test_several_statements_and_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _sql("--format", "json", "select 1 a").objects == [{"a": 1}]
    done = _sql("--json", "select 1 a; create or replace temp view v as select 2 b; select * from v")
    assert done.objects == [{"a": 1}, {"b": 2}]
    for argument in ((), ("-",)):
        monkeypatch.setattr(sys, "stdin", io.StringIO("select 1 a -- one;\n;select 3 b\n"))
        assert _sql("--json", *argument).objects == [{"a": 1}, {"b": 3}]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"counts.{suffix}"
    done = _sql("--json", "-o", path, COUNTS)
    assert (done.code, done.err) == (0, "")
    assert done.objects == [
        {"path": str(path), "format": suffix.replace("jsonl", "json"), "rows": 12, "bytes": path.stat().st_size}
    ]
    if suffix == "parquet":
        rows = parquet.read_table(path).to_pylist()
        assert parquet.read_schema(path).metadata[b"rmqctl.query"].decode() == COUNTS
    elif suffix == "arrow":
        rows = pa.ipc.open_file(path).read_all().to_pylist()
    elif suffix == "csv":
        rows = [{**row, "n": int(row["n"])} for row in csv.DictReader(io.StringIO(path.read_text("utf-8")))]
    else:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    wanted = Counter(str(row["topic"]) for row in truth("clean").messages)
    assert {row["topic"]: row["n"] for row in rows} == wanted


def test_an_answer_without_rows_makes_a_file_with_columns(tmp_path: Path) -> None:
    for suffix in ("parquet", "csv"):
        path = tmp_path / f"none.{suffix}"
        assert _sql("-o", path, "select topic, size from messages where size < 0").code == 0
        names = parquet.read_schema(path).names if suffix == "parquet" else path.read_text().strip().split(",")
        assert names == ["topic", "size"]


def test_a_file_is_complete_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    assert _sql("-o", path, "select cast(topic as int) from messages").code == 2
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"mine")
    done = _sql("-o", path, COUNTS)
    assert done.code == 5
    assert "exists already" in done.err
    assert path.read_bytes() == b"mine"
    assert _sql("-o", path, "--overwrite", "-y", COUNTS).code == 0
    assert parquet.read_table(path).num_rows == 12


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["select topc from messages"], 2, '"topc" not found in FROM clause! Candidate bindings: "topic"'),
        (["drop table messages"], 2, "would change something"),
        (["--format", "parquet", "select 1"], 2, "needs a file"),
        (["-o", "x.txt", "select 1"], 2, "says no format"),
        (["-o", "x.csv", "--format", "table", "select 1"], 2, "a table is for a terminal"),
        (["-o", "x.csv", "select 1; select 2"], 2, "one FILE takes one query"),
        (["--split-size", "much", "select 1"], 2, "is no size"),
        (["--clock-tolerance", "1", "select 1"], 2, "is no time"),
        (["--conf", "x", "select 1"], 2, "say --master, too"),
        (["--conf", "x", "--master", "local[2]", "select 1"], 2, "is no setting of Spark"),
        ([" ; -- nothing"], 2, "there is no query"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, said: str) -> None:
    done = _sql(*arguments)
    assert done.code == code
    assert said in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) <= 4
    assert "Traceback" not in done.err
    assert "org.apache" not in done.err


def test_an_index_that_is_trusted_is_all_that_is_asked(golden_store: GoldenStore) -> None:
    """Its slots are emptied, which nothing shows but its entries."""
    store = golden_store("clean")
    for file in (store / "index").iterdir():
        data = file.read_bytes()
        file.write_bytes(data[:40] + bytes(4 * 500) + data[40 + 4 * 500 :])
    key = next(
        row["properties"]["UNIQ_KEY"] for row in truth("clean").messages[500:] if "UNIQ_KEY" in row["properties"]
    )
    for how, count in ((None, 1), ("checked", 1), ("off", 1), ("trusted", 0)):
        asked = ("--json", f"select count(*) n from messages where unique_key = '{key}'")
        done = run("sql", "-s", store, *asked, *(("--key-index", how) if how else ()))
        assert done.objects == [{"n": count}], how


def test_other_exit_codes(tmp_path: Path) -> None:
    assert run("sql", "-s", tmp_path / "none", "select 1").code == 3
    assert _sql("select * from consumequeue", store="rocksdb").code == 0


def test_hostile_texts_are_shown_as_what_they_are(tmp_path: Path) -> None:
    from tests.store.logs import frame

    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    evil = "a\x1b]0;owned\x07\u202e[bold]"
    data = frame(0, evil.encode(), topic="T", properties={"KEYS": evil, "TAGS": "\x9b31m"})
    (folder / f"{0:020d}").write_bytes(data.ljust(4096, b"\0"))
    for options in ([], ["--json"], ["--format", "csv"]):
        done = run("sql", "-s", tmp_path / "store", *options, "select keys, tags, body, properties from messages")
        assert done.code == 0
        assert not any(sign in done.out for sign in "\x1b\x07\x9b\u202e")
        assert "[bold]" in done.out
    assert done.code == 0
    (row,) = run("sql", "-s", tmp_path / "store", "--json", "select body from messages").objects
    assert row["body"] == evil


def test_looking_changes_nothing(golden_store: GoldenStore) -> None:
    store = golden_store("torn-zero")
    before = tree_state(store)
    assert run("sql", "-s", store, "--json", "select count(*) from messages").code == 0
    assert tree_state(store) == before


def _prompted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: list[str | type[BaseException]]) -> Done:
    """The prompt as a person at a terminal has it, who types these lines."""
    typed = iter(lines)

    def type_line(_: str = "") -> str:
        line = next(typed, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("builtins.input", type_line)
    monkeypatch.setattr("rmqctl.commands.many.sql._is_a_terminal", lambda _: True)
    return _sql()


def test_the_prompt_goes_on_after_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: list[str | type[BaseException]] = [
        "select topic,", "  count(*) n", "from messages where topic = 'a'", "group by 1; select 'x;y' z;",
        "selec;", "select", KeyboardInterrupt, "select 7 seven;", "\\d", "\\d topics", "\\d nope", "\\what", "\\?",
    ]  # fmt: skip
    done = _prompted(monkeypatch, tmp_path, lines)
    assert done.code == 0
    printed = [line.split() for line in done.out.splitlines()]
    assert ["a", "207"] in printed
    assert ["x;y"] in printed
    assert ["7"] in printed
    assert "syntax error" in done.err
    assert any(words[:1] == ["index_entries"] for words in printed)
    assert any(words[:2] == ["perm", "int"] for words in printed)
    assert "no view nope" in done.err
    assert "\\what is no command" in done.err
    assert "\\q" in done.err


def test_the_prompt_ends_when_asked_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for word in ("\\q", "quit;", "exit"):
        assert _prompted(monkeypatch, tmp_path, [word, "select 1 as never;"]).out == ""
    assert history_file() == tmp_path / "rmqctl" / "sql_history"


def _ends_at_ctrl_c(tmp_path: Path, endless: str, *options: str) -> None:
    command = [sys.executable, "-m", "rmqctl", "sql", "-s", str(store_path("clean")), *options]
    with start(
        [*command, "--json", f"select 'here' it_is; {endless}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"it_is": "here"}
        time.sleep(2 if options else 0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "rmqctl: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_query_and_leaves_nothing(tmp_path: Path) -> None:
    _ends_at_ctrl_c(
        tmp_path, "select count(*) from range(100000000000) a(id), range(10) b(id) where a.id * b.id % 7 = 3"
    )


@pytest.mark.jvm
@pytest.mark.turns("programs of Spark", 3)
def test_ctrl_c_ends_it_on_spark(tmp_path: Path) -> None:
    endless = "select count(*) from range(100000000000) a, range(10) b where a.id * b.id % 7 = 3"
    _ends_at_ctrl_c(tmp_path, endless, "--master", "local[2]")


@pytest.mark.jvm
def test_with_a_master_it_is_spark_that_answers(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    statement = "from messages |> aggregate count(*) n group by topic |> order by topic"
    done = _sql("--master", "local[2]", "-o", path, statement)
    assert done.code == 0, done.err
    assert path.read_text("utf-8") == _sql("--format", "csv", COUNTS).out
    done = _sql("--master", "local[2]", "selec 1; select 2")
    assert (done.code, done.out) == (2, "")
    assert "Syntax error at or near 'selec'" in done.err


def test_without_duckdb_it_says_how_to_add_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = _sql(COUNTS)
    assert (done.code, done.out) == (5, "")
    assert "needs duckdb, which is not installed" in done.err
    assert "rmqctl[sql]" in done.err
    assert "--master" in done.err


def test_views_of_queues_that_lag_the_log_say_so() -> None:
    """A view of queues lacks the last messages of a store that crashed, as every other answer from them."""
    for view in ("consumequeue", "CONSUMER_OFFSETS"):
        done = run("sql", "-s", store_path("crash"), f"select count(*) from {view}")
        assert (done.code, "not certain: " in done.err) == (exit_codes.DAMAGE_OR_NOTHING, True)
        assert "400 messages from offset 1877271 on are in no queue yet" in done.err
    for options in (("-s", store_path("crash"), "--as-recovered"), ("-s", store_path("clean"))):
        done = run("sql", *options, "select count(*) from consumequeue")
        assert (done.code, "not certain" in done.err) == (exit_codes.OK, False)
    done = run("sql", "-s", store_path("crash"), "select count(*) from messages")
    assert (done.code, done.err) == (exit_codes.OK, "")
