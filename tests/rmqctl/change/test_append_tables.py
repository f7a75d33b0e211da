"""`rmqctl append --from` a Parquet or Arrow file: what it takes, and every kind of file that is not right."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.output import outcome as exit_codes
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import FAST
from tests.goldens import GoldenStore
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
    assert [list(row["properties"]) for row in rows] == [["KEYS", "TAGS", "UNIQ_KEY"], ["UNIQ_KEY"]]
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


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("more", [(), ("--keep-going",)])
def test_rows_that_are_all_bad(tmp_path: Path, suffix: str, more: tuple[str, ...]) -> None:
    path = written(tmp_path / f"in.{suffix}", {"topic": ["x" * 300] * 3, "body": [b"1"] * 3})
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path, *more)
    assert done.code == exit_codes.USAGE, done.err
    assert sum("topic has 300 bytes" in line for line in done.err.splitlines()) == 3
    assert stored(tmp_path / "store") == []


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_column_twice(tmp_path: Path, suffix: str) -> None:
    columns = {"topic": ["A"], "body": [b"1"], "tags": ["t"]}
    table = pa.table(columns).rename_columns(["topic", "body", "body"])
    path = tmp_path / f"in.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert (done.code, "several columns 'body'" in done.err) == (exit_codes.USAGE, True), done.err


@pytest.mark.parametrize("is_dictionary", [True, False])
def test_a_few_bytes_that_mean_many_come_a_few_rows_at_a_time(tmp_path: Path, is_dictionary: bool) -> None:
    from rmqctl.messages.message_source import pieces_of_table

    rows, size = 1000, 1 << 18
    bodies = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([bytes(size)]))
    table = pa.table({"topic": ["T"] * rows, "body": bodies})
    path = tmp_path / "in.parquet"
    parquet.write_table(table, path, compression="zstd", store_schema=is_dictionary)
    assert path.stat().st_size < 2000
    with path.open("rb") as source:
        pieces = [(len(piece.numbers), piece.bytes) for piece in pieces_of_table(source, False)]
    assert sum(count for count, _ in pieces) == rows
    assert max(read for _, read in pieces) <= 512 * size


class NotedFile(io.BytesIO):
    """Notes which threads read it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.readers: set[int] = set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(size)


@pytest.mark.parametrize("cut", [0, 5], ids=["sound", "cut"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_threads_of_arrow_hold_no_file_of_python(tmp_path: Path, suffix: str, cut: int) -> None:
    """One that let go of it when the process was at its end would end that with SIGABRT."""
    from rmqctl.messages.message_source import pieces_of_table

    data = written(tmp_path / f"in.{suffix}", {"topic": ["A"] * 3, "body": [b"1"] * 3}).read_bytes()
    source = NotedFile(data[: len(data) - cut])
    with pytest.raises(UsageError) if cut else contextlib.nullcontext():
        assert sum(len(piece.numbers) for piece in pieces_of_table(source, False)) == 3
    assert source.readers == {threading.get_ident()}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_bad_rows_among_many(tmp_path: Path, suffix: str) -> None:
    count, bad = 40_000, {20_000: "x" * 200, 33_000: "../up", 33_001: ""}
    columns = {
        "topic": [bad.get(row, f"T{row % 3}") for row in range(1, count + 1)],
        "body": pa.array([b"%d" % row for row in range(1, count + 1)]),
        "queue_id": pa.array([-1 if row == 7 else row % 2 for row in range(1, count + 1)], pa.int32()),
    }
    path = written(tmp_path / f"in.{suffix}", columns)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.USAGE
    named = [line.partition(":")[0] for line in done.err.splitlines() if line.startswith("row ")]
    assert named == ["row 7", *(f"row {row}" for row in bad)]
    assert "4 bad rows: nothing was written" in done.err
    assert stored(tmp_path / "store") == []
    done = run("append", "-s", tmp_path / "store", "--from", path, "--keep-going", "--json")
    assert done.code == exit_codes.USAGE
    assert (done.objects[0]["stored"], done.objects[0]["bad_lines"]) == (count - 4, 4)
    with MessageStore.open(tmp_path / "store") as store:
        bodies = [int(body.as_py()) for batch in store.scan(["body"], views=False) for body in batch.column(0)]
    assert bodies == [row for row in range(1, count + 1) if row != 7 and row not in bad]


@pytest.mark.parametrize(
    ("suffix", "name", "column"),
    [
        ("arrow", "born_timestamp", pa.array([None, 2**62, None], pa.timestamp("s"))),
        ("arrow", "keys", pa.array([None, [2**30], None], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))),
        ("parquet", "keys", pa.array([None, [2**30], None], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))),
    ],
)
def test_a_value_that_python_has_none_for_makes_its_row_bad(
    tmp_path: Path, suffix: str, name: str, column: pa.Array
) -> None:
    """Found by fuzzing: the row is told, and the others are stored."""
    path = written(tmp_path / f"in.{suffix}", {"topic": ["A"] * 3, "body": [b"1", b"2", b"3"], name: column})
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path, "--keep-going")
    assert done.code == exit_codes.USAGE, done.err
    assert done.err.startswith("row 2: "), done.err
    assert [row["body"] for row in stored(tmp_path / "store")] == ["1", "3"]


def test_one_odd_column_makes_no_row_bad(tmp_path: Path) -> None:
    columns = {"topic": ["A", "B"], "body": [b"1", b"2"], "keys": pa.array([["k"], None], pa.large_list(pa.string()))}
    path = written(tmp_path / "in.arrow", columns)
    assert run("append", "-s", tmp_path / "store", "--create", "--from", path).code == exit_codes.OK
    assert [row["keys"] for row in stored(tmp_path / "store")] == [["k"], []]


def test_as_stored_needs_time_and_host_of_every_row(tmp_path: Path) -> None:
    columns = {
        "topic": ["A"] * 3,
        "body": [b""] * 3,
        "store_timestamp": pa.array([5, None, 6], pa.timestamp("ms", "UTC")),
        "store_host": ["1.2.3.4:5"] * 3,
    }
    path = written(tmp_path / "in.parquet", columns)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path, "--as-stored")
    assert done.code == exit_codes.USAGE
    assert "row 2: --as-stored needs store_timestamp and store_host" in done.err
    assert "1 bad row:" in done.err
    assert run("append", "-s", tmp_path / "store", "--from", path, "--as-stored", "--keep-going").code == 2
    assert [row["store_timestamp"] for row in stored(tmp_path / "store")] == [5, 6]
    del columns["store_host"]
    path = written(tmp_path / "none.parquet", columns)
    done = run("append", "-s", tmp_path / "other", "--create", "--from", path, "--as-stored")
    assert "3 bad rows" in done.err


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


@pytest.mark.parametrize("columns", [None, "topic,queue_id,body", "body,topic"])
def test_csv_is_called_csv(golden_store: GoldenStore, tmp_path: Path, columns: str | None) -> None:
    path = tmp_path / "x.csv"
    given = [] if columns is None else ["--columns", columns]
    assert run("export", "-s", golden_store("features"), path, *given).code == exit_codes.OK
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.USAGE
    assert "it is CSV, which is not read" in done.err
    assert "JSON Lines, Parquet and Arrow" in done.err
    assert not (tmp_path / "store").exists()
    path.write_text("a,b\n1,2\n")  # none of our columns: the file's name says it
    assert "it is CSV" in run("append", "-s", tmp_path / "store", "--create", "--from", path).err


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "in.parquet", {"topic": ["A"], "body": [b""]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("append", "-s", tmp_path / "store", "--create", "--from", path)
    assert done.code == exit_codes.REFUSED
    assert FAST in done.err
