"""What a write may be told and given: options, columns, types; and how Spark's queries are told apart."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.pipeline.spark.options import view_schema
from rmqctl.pipeline.spark.sink import (
    SINK_OPTIONS,
    MessageStreamWriter,
    MessageWriter,
    RocketMQStore,
    parse_sink_options,
)
from rmqctl.pipeline.spark.sink_record import queues_of, require_columns, rows_to_stage
from rmqctl.pipeline.views import TABLES
from tests.processes import ROOT

MESSAGES = [(name, column.kind) for name, column in TABLES["messages"].columns.items()]
NEEDED = [("topic", "string"), ("body", "binary")]


def test_options_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    found = parse_sink_options(
        {"PATH": f"{tmp_path}/link", "asStored": "True", "Query": " a ", "checkpointlocation": "c"}
    )
    assert found == (tmp_path / "store", None, True, "a", "c")
    assert parse_sink_options({"store": "x"})[:3] == (Path.cwd() / "x", None, False)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "no store is named"),
        ({"path": "x", "as_stored": "yes"}, "neither true nor false"),
        ({"path": "x", "view": "messages"}, "has no option 'view'"),
    ],
)
def test_options_that_are_none(given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_sink_options(given)


def test_a_query_has_the_id_of_its_checkpoint(tmp_path: Path) -> None:
    options = parse_sink_options({"path": "x", "checkpointLocation": f"file://{tmp_path}"})
    assert options.query_name() == f"file://{tmp_path}"
    (tmp_path / "metadata").write_text('{"id":"7f623be0"}')
    assert options.query_name() == "7f623be0"
    assert options._replace(query="mine").query_name() == "mine"
    (tmp_path / "metadata").write_text("{")
    assert options.query_name() == f"file://{tmp_path}"
    with pytest.raises(UsageError, match="the query has no name"):
        parse_sink_options({"path": "x"}).query_name()


def test_what_is_taken_of_a_frame_that_was_read() -> None:
    new, copies = require_columns(MESSAGES, as_stored=False), require_columns(MESSAGES, as_stored=True)
    assert set(copies) - set(new) == {"store_timestamp", "store_host"}
    made_anew = {"msg_id", "unique_key", "queue_offset", "physical_offset", "size", "transaction", "compression"}
    assert {name for name, _ in MESSAGES} - set(copies) == made_anew | {"body_crc", "crc_ok", "body_size"}


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([*NEEDED, ("colour", "int")], "no column 'colour'"),
        ([*NEEDED, ("topic", "string")], "several columns 'topic'"),
        ([*NEEDED, ("queue_id", "double")], "'queue_id' has type double"),
        ([*NEEDED, ("keys", "string")], "'keys' has type string"),
        ([*NEEDED, ("born_timestamp", "string")], "'born_timestamp' has type string"),
        (NEEDED[:1], "no column 'body'"),
    ],
)
def test_columns_that_are_refused(columns: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        require_columns(columns, as_stored=False)


def test_types_that_are_as_good() -> None:
    columns = [("topic", "string"), ("body", "string"), ("queue_id", "bigint"), ("born_timestamp", "bigint")]
    assert require_columns(columns, as_stored=False) == ("topic", "body", "queue_id", "born_timestamp")


def test_rows_are_staged_with_whole_milliseconds() -> None:
    times = pa.array([1_700_000_000_123_999, -1, None], pa.timestamp("us", "Europe/Berlin"))
    batch = pa.record_batch({"size": [1, 2, 3], "born_timestamp": times, "topic": ["A"] * 3, "body": [b""] * 3})
    staged = rows_to_stage(batch, ("topic", "born_timestamp"), 0)
    assert staged.schema.names == ["topic", "born_timestamp"]
    assert staged.column("born_timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_123, -1, None]
    for name in ("topic", "body"):
        lacking = pa.record_batch({"topic": ["A"] * 3, "body": [b""] * 3} | {name: pa.array(["a", None, "b"])})
        with pytest.raises(UsageError, match=f"row 41 has no {name}"):
            rows_to_stage(lacking, ("topic", "body"), 40)


def test_queues_that_topics_need() -> None:
    batch = pa.record_batch({"topic": ["A", "B", "A"], "body": [b""] * 3, "queue_id": [3, None, 1]})
    assert queues_of(batch) == {"A": 4, "B": 1}
    assert queues_of(batch.drop_columns("queue_id")) == {"A": 1, "B": 1}


def test_what_spark_is_given(tmp_path: Path) -> None:
    source = RocketMQStore({"path": str(tmp_path / "store"), "checkpointLocation": str(tmp_path)})
    schema = view_schema("messages", ("topic", "body", "born_timestamp"))
    writer = source.writer(schema, overwrite=False)
    assert isinstance(writer, MessageWriter)
    batch = pa.record_batch({"topic": ["A"], "body": [b"1"], "born_timestamp": [datetime.datetime(2026, 11, 20)]})
    written = writer.write(iter([batch]))
    writer.abort([written, None])
    assert list(tmp_path.iterdir()) == []
    stream = source.streamWriter(schema, overwrite=False)
    assert isinstance(stream, MessageStreamWriter)
    written = stream.write(iter([batch]))
    # another process ends the micro-batch with a writer of its own
    source.streamWriter(schema, overwrite=False).commit([written], 0)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with pytest.raises(UsageError, match='no outputMode\\("complete"\\)'):
        source.streamWriter(schema, overwrite=True)


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert [name for name in SINK_OPTIONS if f"| `{name}` |" not in text] == []
