"""Exports by topic and day: paths, order, few open files, little memory; and what a writer must get right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet

from rmqctl.formats.errors import NotFoundError
from rmqctl.store.export import partitions, writers
from rmqctl.store.export.export import Target, export_batches, export_records
from rmqctl.store.export.partitions import DAY, Partition, partitioned

TYPES = {"topic": pa.dictionary(pa.int32(), pa.string()), "store_timestamp": pa.timestamp("ms", "UTC"), "n": pa.int32()}
SCHEMA = pa.schema(list(TYPES.items()))


def batch(rows: list[tuple[int, int]], names: list[str], first: int = 0) -> pa.RecordBatch:
    """A batch of (topic id, time) with rows numbered from `first`."""
    topics = pa.DictionaryArray.from_arrays(pa.array([topic for topic, _ in rows], pa.int32()), pa.array(names))
    times = pa.array([time for _, time in rows], pa.int64()).view(TYPES["store_timestamp"])
    return pa.RecordBatch.from_arrays(
        [topics, times, pa.array(range(first, first + len(rows)), pa.int32())], schema=SCHEMA
    )


@pytest.mark.parametrize(
    ("topic", "day", "path"),
    [
        ("Orders", 0, "topic=Orders/day=1970-01-01"),
        ("%RETRY%g", 20000, "topic=%25RETRY%25g/day=2024-10-04"),
        ("../../x", -1, "topic=..%2F..%2Fx/day=1969-12-31"),
        ("标 签", 1, "topic=%E6%A0%87%20%E7%AD%BE/day=1970-01-02"),
    ],
)
def test_paths(topic: str, day: int, path: str) -> None:
    assert Partition(topic, day).directory == Path(path)


def test_long_topics_have_a_path_of_their_own() -> None:
    paths = {Partition("t" * length, 0).directory.parts[0] for length in range(170, 400)}
    assert len(paths) == 230
    assert max(map(len, paths)) < 255


def test_rows_are_cut_into_partitions_in_their_order() -> None:
    rows = [(0, 0), (1, 5), (0, DAY), (0, 7), (1, -1), (0, DAY - 1)]
    found = {partition: part.column("n").to_pylist() for partition, part in partitioned(batch(rows, ["A", "B"]))}
    assert found == {("A", 0): [0, 3, 5], ("A", 1): [2], ("B", 0): [1], ("B", -1): [4]}
    whole = batch([(1, 3), (1, 4)], ["A", "B"])
    [(partition, part)] = partitioned(whole)
    assert partition == ("B", 0)
    assert part is whole
    assert list(partitioned(batch([], ["A"]))) == []


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_few_files_are_open_and_nothing_is_lost(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_MOST_OPEN", 3)
    monkeypatch.setattr(partitions, "_PENDING_BYTES", 2000)
    names = [f"topic{number}" for number in range(7)]
    batches = [
        batch([(row % 7, DAY * (row // 100)) for row in range(at, at + 50)], names, at) for at in range(0, 400, 50)
    ]
    target = Target(tmp_path / "lake", kind, partition=True)  # type: ignore[arg-type]
    report = export_batches(batches, SCHEMA, SCHEMA.names, target)
    files = sorted(path for path in target.path.rglob("*") if path.is_file())
    assert (report.messages, report.partitions, report.files) == (400, 28, len(files))
    assert report.bytes == sum(path.stat().st_size for path in files)
    found: dict[str, list[int]] = {}
    for path in files:
        table = parquet.ParquetFile(path).read() if kind == "parquet" else pa.ipc.open_file(path).read_all()
        found.setdefault(str(path.parent), []).extend(table.column("n").to_pylist())
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(400))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    if kind == "parquet":
        assert parquet.read_table(target.path).num_rows == 400


def test_an_ipc_file_takes_batches_that_know_fewer_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_SMALL_BYTES", 0)
    batches = [batch([(0, 1)], ["A"]), batch([(2, 1)], ["A", "B", "C"]), batch([(1, 1)], ["A", "B"])]
    path = tmp_path / "out.arrow"
    export_batches(batches, SCHEMA, SCHEMA.names, Target(path, "arrow"))
    table = pa.ipc.open_file(path).read_all()
    assert table.column("topic").to_pylist() == ["A", "C", "B"]


def test_nothing_to_write_is_an_error_and_no_file(tmp_path: Path) -> None:
    for partition in (False, True):
        with pytest.raises(NotFoundError):
            export_batches([], SCHEMA, SCHEMA.names, Target(tmp_path / "out", "parquet", partition))
        with pytest.raises(NotFoundError):
            export_records([], Target(tmp_path / "out", "jsonl", partition), str)
    assert os.listdir(tmp_path) == []


def test_an_error_in_the_thread_that_writes_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("in the thread")

    monkeypatch.setattr(writers.ParquetWriter, "_emit", fail)
    for partition in (False, True):
        target = Target(tmp_path / "out", "parquet", partition)
        with pytest.raises(ValueError, match="in the thread"):
            export_batches([batch([(0, 0)], ["A"])], SCHEMA, SCHEMA.names, target)
    assert os.listdir(tmp_path) == []
