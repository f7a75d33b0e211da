"""`rmqctl export`: formats, filters, columns, metadata, damage and what is refused."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl import exporting
from rmqctl.output import outcome as exit_codes
from rmqctl.store.status import FAST
from tests.goldens import truth
from tests.opened import store_path
from tests.quick import sample
from tests.rmqctl.looking import run

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet


@pytest.fixture(params=["columns", "single messages"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Text is made of columns, but for few messages: here either of all."""
    monkeypatch.setattr(exporting, "PLAIN_BYTES", -1 if request.param == "columns" else 1 << 60)
    return str(request.param)


def offsets_of(path: Path) -> list[int]:
    """Physical offsets in an exported file."""
    if path.suffix == ".parquet":
        return list(parquet.ParquetFile(path).read(["physical_offset"]).column(0).to_pylist())
    if path.suffix == ".arrow":
        return list(pa.ipc.open_file(path).read_all().column("physical_offset").to_pylist())
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        return [json.loads(line)["physical_offset"] for line in lines]
    return [int(row["physical_offset"]) for row in csv.DictReader(lines)]


def expected(**fields: object) -> list[int]:
    return [
        row["phyOffset"] for row in truth("clean").messages if all(row[key] == value for key, value in fields.items())
    ]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "csv"])
def test_options_become_filters(suffix: str, tmp_path: Path) -> None:
    rows = truth("clean").messages
    begin, end = rows[100]["storeTimestamp"], rows[120]["storeTimestamp"]
    inside = [row["phyOffset"] for row in rows if begin <= row["storeTimestamp"] <= end]
    unique = rows[9]["properties"]["UNIQ_KEY"]
    for number, (arguments, wanted) in enumerate(
        [
            ((), expected()),
            (("-t", "OrderTopic", "-q", 2), expected(topic="OrderTopic", queueId=2)),
            (("--tag", "TagB"), expected(tags="TagB")),
            (("-k", unique), [rows[9]["phyOffset"]]),
            (("-o", rows[3]["phyOffset"], "--to", rows[6]["phyOffset"]), expected()[3:6]),
            (("-b", begin, "-e", end), inside),
        ]
    ):
        path = tmp_path / f"{number}.{suffix}"
        done = run("export", "-s", store_path("clean"), path, *arguments, "--json")
        assert done.code == exit_codes.OK, done.err
        assert offsets_of(path) == wanted
        assert done.objects == [
            {
                "path": str(path),
                "format": suffix,
                "messages": len(wanted),
                "files": 1,
                "partitions": None,
                "bytes": path.stat().st_size,
                "damaged_spans": 0,
                "bodies_as_stored": 0,
            }
        ]


@pytest.mark.usefixtures("way")
def test_columns(tmp_path: Path) -> None:
    names = ["topic", "keys", "body_size"]
    for suffix in ("parquet", "arrow", "jsonl", "csv"):
        path = tmp_path / f"out.{suffix}"
        done = run("export", "-s", store_path("clean"), path, "--columns", ",".join(names))
        assert done.code == exit_codes.OK
        found: dict[str, Any] = {
            "parquet": lambda path: parquet.ParquetFile(path).schema_arrow.names,
            "arrow": lambda path: pa.ipc.open_file(path).schema.names,
            "jsonl": lambda path: list(json.loads(path.read_text().splitlines()[0])),
            "csv": lambda path: path.read_text().splitlines()[0].split(","),
        }
        assert found[suffix](path) == names
        for wrong in ("nope", "topic,topic"):
            assert run("export", "-s", store_path("clean"), tmp_path / f"x.{suffix}", "--columns", wrong).code == 2


def test_a_file_says_where_it_is_from(tmp_path: Path) -> None:
    done = run("export", "-s", store_path("clean"), tmp_path / "out.parquet", "-t", "OrderTopic")
    assert done.code == exit_codes.OK
    metadata = parquet.ParquetFile(tmp_path / "out.parquet").schema_arrow.metadata
    store = json.loads(metadata[b"rmqctl.store"])
    assert store["path"] == str(store_path("clean"))
    assert store["first_message_id"] == truth("clean").messages[0]["msgId"]
    assert json.loads(metadata[b"rmqctl.selection"])["topic"] == "OrderTopic"
    assert metadata[b"rmqctl.schema"] == b"1"


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "csv"])
def test_partitions(suffix: str, tmp_path: Path) -> None:
    done = run(
        *("export", "-s", store_path("clean"), tmp_path / "lake", "--partition", "--format", suffix),
        *("--columns", "physical_offset", "--json"),
    )
    assert done.code == exit_codes.OK
    files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file()]
    assert done.objects[0]["files"] == len(files) == done.objects[0]["partitions"]
    by_topic = {path.parent.parent.name: offsets_of(path) for path in files}
    assert by_topic["topic=OrderTopic"] == expected(topic="OrderTopic")
    assert by_topic["topic=%25RETRY%25GroupA"] == expected(topic="%RETRY%GroupA")
    assert sorted(offset for offsets in by_topic.values() for offset in offsets) == expected()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "csv"])
@pytest.mark.parametrize(("name", "count"), [("crc-flip-third", 2499), ("gap", 2196)])
def test_damage_is_told_and_passed(name: str, count: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{suffix}"
    done = run("export", "-s", store_path(name), path, "--json")
    assert done.code == exit_codes.DAMAGE_OR_NOTHING
    assert done.err.count("damage:") == 1
    assert (done.objects[0]["messages"], done.objects[0]["damaged_spans"]) == (count, 1)
    assert len(offsets_of(path)) == count


def test_nothing_matched(tmp_path: Path) -> None:
    for suffix in ("parquet", "csv"):
        done = run("export", "-s", store_path("clean"), tmp_path / f"out.{suffix}", "-t", "Nowhere")
        assert (done.code, done.out) == (exit_codes.DAMAGE_OR_NOTHING, "")
        assert "no message matched" in done.err
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    path.write_bytes(b"precious")
    assert run("export", "-s", store_path("clean"), path).code == exit_codes.REFUSED
    assert path.read_bytes() == b"precious"
    assert run("export", "-s", store_path("clean"), path, "--overwrite", "-y").code == exit_codes.OK
    assert len(offsets_of(path)) == 2500


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("export", "-s", store_path("clean"), tmp_path / "out.parquet")
    assert done.code == exit_codes.REFUSED
    assert FAST in done.err
    for suffix in ("jsonl", "csv"):
        done = run("export", "-s", store_path("clean"), tmp_path / f"out.{suffix}")
        assert (done.code, done.err) == (exit_codes.OK, "")
        assert len(offsets_of(tmp_path / f"out.{suffix}")) == 2500
    monkeypatch.setattr(exporting, "PLAIN_BYTES", 1000)
    done = run("export", "-s", store_path("clean"), tmp_path / "large.csv")
    assert done.code == exit_codes.OK
    assert done.err.count("pyarrow is not installed") == 1
    assert (tmp_path / "large.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize("name", sample(["features", "broker-real", "crc-flip-third"], ["features", "crc-flip-third"]))
def test_text_is_the_same_either_way(name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, limit in (("single", 1 << 60), ("columns", -1)):
        monkeypatch.setattr(exporting, "PLAIN_BYTES", limit)
        run("export", "-s", store_path(name), tmp_path / f"{place}.{suffix}")
        options = ("--partition", "--format", suffix, "--columns", "body_base64,properties,body")
        run("export", "-s", store_path(name), tmp_path / place, *options)
    assert (tmp_path / f"single.{suffix}").read_bytes() == (tmp_path / f"columns.{suffix}").read_bytes()
    single, columns = (
        {path.relative_to(tmp_path / place): path.read_bytes() for path in (tmp_path / place).rglob("*.*")}
        for place in ("single", "columns")
    )
    assert single == columns
    assert single


@pytest.mark.usefixtures("way")
def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    from rmqctl.store.export.export import LineWriter
    from rmqctl.store.export.writers import TableWriter

    monkeypatch.setattr(TableWriter, "write", interrupt)
    monkeypatch.setattr(LineWriter, "write", interrupt)
    for arguments in (["out.parquet"], ["out.csv"], ["lake", "--partition"]):
        done = run("export", "-s", store_path("clean"), tmp_path / arguments[0], *arguments[1:])
        assert done.code == exit_codes.INTERRUPTED
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("out",),
        ("out.txt",),
        ("out.csv", "--compression", "zstd"),
        ("lake", "--partition", "--overwrite"),
        ("out.csv", "--columns", ","),
        ("out.csv", "--tag", "||"),
        ("out.csv", "-b", "2", "-e", "1"),
        ("out.csv", "--format", "xlsx"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert run("export", "-s", store_path("clean"), tmp_path / arguments[0], *arguments[1:]).code == exit_codes.USAGE
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("way")
def test_nothing_raw_in_a_text_file(tmp_path: Path) -> None:
    from rmqctl.formats.message import Host, Message
    from tests.formats.frames import frame_of

    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    frame = frame_of(Message("T", "\x1b[2J\u202e".encode()), Host(bytes(4), 1), physical_offset=0)
    (log / ("0" * 20)).write_bytes(frame.ljust(4096, b"\0"))
    path = tmp_path / "out.jsonl"
    assert run("export", "-s", tmp_path / "store", path).code == exit_codes.OK
    text = path.read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert json.loads(text)["body"] == "\x1b[2J\u202e"
