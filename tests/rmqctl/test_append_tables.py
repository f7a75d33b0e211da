"""`rmqctl append --from` a Parquet or Arrow file: what it takes, and every kind of file that is not right."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl import exit_codes
from tests.rmqctl.looking import run

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet


def written(path: Path, columns: dict[str, Any]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


def stored(store: Path) -> list[dict[str, Any]]:
    return run("cat", "-s", store, "--json").objects


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_few_columns_are_enough(tmp_path: Path, suffix: str) -> None:
    columns = {"topic": ["A", "B"], "body": [b"\xff", b""], "keys": [["k1", "k2"], None], "tags": ["t", None]}
    path = written(tmp_path / f"in.{suffix}", columns)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path, "--json")
    assert done.code == exit_codes.OK, done.err
    assert done.objects[0]["stored"] == 2
    rows = stored(tmp_path / "store")
    assert [row["topic"] for row in rows] == ["A", "B"]
    assert [row["properties"] for row in rows] == [{"KEYS": "k1 k2", "TAGS": "t"}, {}]
    assert rows[0]["body_base64"] == "/w=="


def test_bodies_as_texts_and_times_in_other_units(tmp_path: Path) -> None:
    times = pa.array([1_700_000_000_123_000], pa.int64()).view(pa.timestamp("us"))
    path = written(tmp_path / "in.parquet", {"topic": ["A"], "body": ["täxt"], "born_timestamp": times})
    assert run("append", "-s", tmp_path / "store", "--create", "--from", path).code == exit_codes.OK
    [row] = stored(tmp_path / "store")
    assert (row["body"], row["born_timestamp"]) == ("täxt", 1_700_000_000_123)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_bad_rows_are_named(tmp_path: Path, suffix: str) -> None:
    columns = {"topic": ["A", None, "", "B"], "body": [b"1", b"2", b"3", b"4"], "queue_id": [0, 0, 0, -1]}
    path = written(tmp_path / f"in.{suffix}", columns)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.USAGE
    assert [line.partition(":")[0] for line in done.err.splitlines() if line.startswith("row ")] == [
        "row 2",
        "row 3",
        "row 4",
    ]
    assert "3 bad rows: nothing was written" in done.err
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path, "--keep-going", "--json")
    assert done.code == exit_codes.USAGE
    assert (done.objects[0]["stored"], done.objects[0]["bad_lines"]) == (1, 3)


@pytest.mark.parametrize("columns", [{"topic": ["A"]}, {"body": [b""]}, {"topic": ["A"], "body": [b""], "bodi": [1]}])
def test_files_of_other_columns(tmp_path: Path, columns: dict[str, Any]) -> None:
    path = written(tmp_path / "in.parquet", columns)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.USAGE
    assert "column" in done.err


@pytest.mark.parametrize(
    ("name", "value"),
    [("queue_id", ["one"]), ("properties", [1]), ("born_host", [3]), ("stored_properties", ["text"]), ("body", [7])],
)
def test_columns_of_other_types(tmp_path: Path, name: str, value: list[Any]) -> None:
    path = written(tmp_path / "in.parquet", {"topic": ["A"], "body": [b""], name: value})
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.USAGE
    assert "row 1: " in done.err


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_that_are_cut_or_damaged(tmp_path: Path, suffix: str) -> None:
    columns = {"topic": ["A"] * 3000, "body": [b"%d" % number for number in range(3000)]}
    data = written(tmp_path / f"in.{suffix}", columns).read_bytes()
    for wrong in (data[:-10], data[: len(data) // 2], data[:8], data[:100] + bytes(1000) + data[1100:]):
        path = tmp_path / f"wrong.{suffix}"
        path.write_bytes(wrong)
        done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
        assert done.code in (exit_codes.USAGE, exit_codes.OK)
        if done.code == exit_codes.OK:
            pytest.fail("a damaged file was taken")


def test_from_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self._data.readinto(buffer)

    path = written(tmp_path / "in.arrow", {"topic": ["A"], "body": [b"piped"]})
    for number, how in enumerate(([], ["--keep-going"])):
        stdin = io.TextIOWrapper(io.BufferedReader(Pipe(path.read_bytes())))
        monkeypatch.setattr(sys, "stdin", stdin)
        store = tmp_path / f"store{number}"
        done = run("append", "-s", store, "--create", "--from", "-", *how)
        assert done.code == exit_codes.OK, done.err
        assert [row["body"] for row in stored(store)] == ["piped"]


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "in.parquet", {"topic": ["A"], "body": [b""]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.REFUSED
    assert "rmqctl[fast]" in done.err
