"""The export job: the messages of the truth, the same bytes from every engine, complete or not there."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError, NotAStoreError, NotFoundError, RefusedError, UsageError
from rmqctl.pipeline.engine import LocalEngine
from rmqctl.pipeline.jobs import export as export_parts
from rmqctl.pipeline.jobs.export import SUCCESS, export_split, export_with
from rmqctl.pipeline.splits import SplitEdgeError, plan_splits, run_bundles
from rmqctl.store.export.export import Format, Target
from rmqctl.store.export.partitions import DAY
from rmqctl.store.log.resync import LOOK_BACK
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.select import Selection
from rmqctl.store.store_files import StoreFiles
from tests.goldens import truth
from tests.opened import known_messages, store_path
from tests.pipeline.decoys import SPLIT_IN_DECOY, store_with_a_huge_decoy
from tests.pipeline.engines import ENGINES, OTHER_ENGINES, bytes_below, engine_named
from tests.quick import every, sample
from tests.store.logs import frame

parquet = pytest.importorskip("pyarrow.parquet")

SPLIT = 40_000


def exported(
    name: str, target: Path, engine: Any = None, to: tuple[Format, bool] = ("parquet", False), **options: Any
) -> tuple[Any, list[CorruptError]]:
    damages: list[CorruptError] = []
    with StoreFiles(store_path(name)) as files:
        report = export_with(
            engine or LocalEngine(1),
            files,
            Target(target, *to),
            events=Events(damage=damages.append),
            split_size=SPLIT,
            **options,
        )
    return report, damages


def rows_of(folder: Path, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.parquet")):
        found += parquet.ParquetFile(path).read(list(columns) or None).to_pylist()
    return found


@pytest.mark.parametrize("name", every(2, ["features", "crc-flip-old", "v4-features", "lmq", "gap"]))
def test_the_messages_of_the_truth(name: str, tmp_path: Path) -> None:
    report, damages = exported(name, tmp_path / "out")
    rows = rows_of(tmp_path / "out", "physical_offset", "topic", "queue_offset", "msg_id")
    offsets = [row["physical_offset"] for row in rows]
    assert offsets == sorted(offsets)
    known = known_messages(name)
    for row in rows:
        if row["physical_offset"] in known:  # the real broker stops at damage, we go on behind it
            expected = known[row["physical_offset"]]
            assert (row["topic"], row["queue_offset"]) == (expected["topic"], expected["queueOffset"])
    missed = set(known) - set(offsets)
    assert all(any(one.physical_offset <= offset for one in damages) for offset in missed)  # type: ignore[operator]
    assert report.messages == len(rows)
    assert (tmp_path / "out" / SUCCESS).read_bytes() == b""
    assert len(list((tmp_path / "out").glob("part-*"))) == report.files > 1


BY_DAY: tuple[Format, bool] = ("parquet", True)
OPTIONS: list[tuple[Format, bool]] = [("parquet", False), BY_DAY, ("arrow", True)]


@pytest.mark.parametrize("other", OTHER_ENGINES)
@pytest.mark.parametrize("options", sample(OPTIONS, OPTIONS[1:2]))
def test_every_engine_writes_the_same_bytes(
    options: tuple[Format, bool], other: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made = {}
    for engine in ("inline", other):
        target = tmp_path / engine
        report, damages = exported("crc-flip-old", target, engine_named(engine, request), options)
        made[engine] = bytes_below(target), report, [str(damage) for damage in damages]
    assert made["inline"] == made[other]
    assert {path.name for path in tmp_path.iterdir()} == {"inline", other}


def test_partitions_hold_their_topic_and_day_and_small_ones_are_one_file(tmp_path: Path) -> None:
    report, _ = exported("clean", tmp_path / "out", to=BY_DAY)
    partitions = Counter(path.parent for path in (tmp_path / "out").rglob("part-*.parquet"))
    assert set(partitions.values()) == {1}
    assert report.partitions == report.files == len(partitions)
    assert report.bytes == sum(path.stat().st_size for path in (tmp_path / "out").rglob("part-*"))
    offsets = []
    for folder in partitions:
        rows = rows_of(folder, "topic", "store_timestamp", "physical_offset")
        assert len({row["topic"] for row in rows}) == 1
        days = {int(row["store_timestamp"].timestamp() * 1000) // DAY for row in rows}
        assert len(days) == 1
        places = [row["physical_offset"] for row in rows]
        assert places == sorted(places)
        offsets += places
    assert sorted(offsets) == sorted(row["phyOffset"] for row in truth("clean").messages)


def test_large_partitions_get_files_of_their_own_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported("clean", tmp_path / "whole", to=BY_DAY)
    monkeypatch.setattr(export_parts, "OWN_FILE", 30_000)
    monkeypatch.setattr(export_parts, "COMPACTED", 50_000)
    monkeypatch.setattr(export_parts, "_GATHERED", 40_000)
    report, _ = exported("clean", tmp_path / "cut", to=BY_DAY)
    assert report.files > report.partitions > 1
    for folder in {path.parent for path in (tmp_path / "cut").rglob("part-*")}:
        numbers = sorted(int(path.stem.removeprefix("part-")) for path in folder.iterdir())
        assert numbers == list(range(len(numbers)))
        rows = [row for number in numbers for row in _read(folder / f"part-{number}.parquet")]
        other = tmp_path / "whole" / folder.relative_to(tmp_path / "cut")
        assert rows == _read(other / "part-0.parquet")


def _read(path: Path) -> Any:
    return parquet.ParquetFile(path).read().to_pylist()


def test_columns_criteria_and_ranges(tmp_path: Path) -> None:
    everything, _ = exported("features", tmp_path / "all", columns=["physical_offset", "topic", "tags"])
    rows = rows_of(tmp_path / "all")
    topic = Counter(row["topic"] for row in rows).most_common(1)[0][0]
    exported("features", tmp_path / "topic", columns=["physical_offset"], selection=Selection(Criteria(topic=topic)))
    wanted = [{"physical_offset": row["physical_offset"]} for row in rows if row["topic"] == topic]
    assert rows_of(tmp_path / "topic") == wanted
    begin, end = rows[10]["physical_offset"] - 1, rows[20]["physical_offset"] + 1
    exported("features", tmp_path / "range", columns=["physical_offset"], selection=Selection(begin=begin, end=end))
    assert [row["physical_offset"] for row in rows_of(tmp_path / "range")] == [
        row["physical_offset"] for row in rows[10:21]
    ]
    assert everything.messages == len(rows)


def test_metadata_is_in_every_file(tmp_path: Path) -> None:
    exported("features", tmp_path / "out", to=BY_DAY)
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert parquet.read_schema(path).metadata[b"rmqctl.schema"] == b"1"


def test_nothing_is_left_where_nothing_was_written(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with pytest.raises(NotFoundError):
        exported("features", tmp_path / "out", selection=Selection(Criteria(topic="none such")))
    with pytest.raises(UsageError):
        exported("features", tmp_path / "out", columns=["none such"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RefusedError):
        exported("features", tmp_path / "full")
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "file"]


def test_a_huge_message_of_decoys_is_exported_as_what_it_is(tmp_path: Path) -> None:
    files, _ = store_with_a_huge_decoy(tmp_path / "store")
    with files:
        length = files.log.max_offset
        told: list[int] = []
        export_with(
            LocalEngine(1),
            files,
            Target(tmp_path / "out", "parquet"),
            events=Events(told.append),
            columns=["body_size"],
            split_size=SPLIT_IN_DECOY,
        )
    assert sum(told) == length
    assert [row["body_size"] for row in rows_of(tmp_path / "out")] == [
        5,
        LOOK_BACK + 1000 + 2000 * len(frame(0, b"decoy" * 200)),
        4,
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_task_that_fails_names_file_and_offset_and_leaves_nothing(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    files, offset = store_with_a_huge_decoy(tmp_path / "store")
    (tmp_path / "scratch").mkdir()
    with files:
        order = export_parts.ExportOrder(("topic",), Criteria(), True, "zstd", {}, str(tmp_path / "scratch"), buckets=1)
        splits = plan_splits(files, SPLIT_IN_DECOY)
        with pytest.raises(SplitEdgeError) as caught:
            run_bundles(engine_named(engine, request), "export", partial(export_split, order), splits, SPLIT_IN_DECOY)
        assert (caught.value.file, caught.value.physical_offset) == (str(files.log.files[0].path), offset)
        shutil.rmtree(tmp_path / "store")
        with pytest.raises(NotAStoreError, match=str(tmp_path / "store")):
            export_with(
                engine_named(engine, request), files, Target(tmp_path / "out", "parquet"), split_size=SPLIT_IN_DECOY
            )
    assert {path.name for path in tmp_path.iterdir()} == {"scratch"}
