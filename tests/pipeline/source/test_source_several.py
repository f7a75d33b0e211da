"""Several stores in one read: their rows together, each with its store, and only what is asked for is read."""

from __future__ import annotations

import json
import socket
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import datasource as filters

from rmqctl.formats.errors import CorruptError, NotAStoreError, UsageError
from rmqctl.pipeline.spark.options import parse_options, view_schema
from rmqctl.pipeline.spark.source import (
    MessageReader,
    PushingMessageReader,
    PushingTableReader,
    RocketMQSource,
    TableSourceReader,
)
from rmqctl.pipeline.spark.split_task import SplitPartition
from rmqctl.pipeline.views import TABLES
from tests.goldens import GoldenStore, truth
from tests.opened import store_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("clean", "features")
SIZES = {name: len(truth(name).messages) for name in NAMES}


def _paths() -> list[str]:
    return [str(store_path(name)) for name in NAMES]


def _rows(kind: Any, names: tuple[str, ...], asked: Any = (), **given: str) -> list[dict[str, Any]]:
    options = parse_options({"paths": json.dumps(_paths()), "columns": ",".join(names), **given})
    reader = kind(options, view_schema(options.view, names))
    if asked:
        assert reader.pushFilters(list(asked)) == list(asked)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_messages_say_which_store_they_are_of() -> None:
    rows = _rows(MessageReader, ("store", "physical_offset", "broker_name"))
    for path, name in zip(_paths(), NAMES, strict=True):
        wanted = [row["phyOffset"] for row in truth(name).messages]
        assert [row["physical_offset"] for row in rows if row["store"] == path] == wanted
    assert {row["broker_name"] for row in rows} == {None}
    assert [row["store"] for row in _rows(MessageReader, ("store",))] == [row["store"] for row in rows]


def test_a_condition_on_the_store_leaves_out_the_others() -> None:
    path = _paths()[1]
    assert (
        len(_rows(PushingMessageReader, ("physical_offset",), [filters.EqualTo(("store",), path)])) == SIZES["features"]
    )
    both = [filters.In(("store",), tuple(_paths()))]
    assert len(_rows(PushingMessageReader, ("topic",), both)) == sum(SIZES.values())
    assert _rows(PushingMessageReader, ("topic",), [filters.EqualTo(("broker_name",), "x")]) == []
    topics = _rows(PushingTableReader, ("topic", "store"), [filters.EqualTo(("store",), path)], view="topics")
    assert {row["store"] for row in topics} == {path}


@pytest.mark.parametrize("view", [view for view in TABLES if view != "messages"])
def test_other_views_say_it_too(view: str) -> None:
    names = (next(iter(TABLES[view].columns)), "store")
    rows = _rows(TableSourceReader, names, view=view)
    each = {
        path: [row[names[0]] for row in _rows(TableSourceReader, names, view=view, path=path, paths=path)]
        for path in _paths()
    }
    assert [(row[names[0]], row["store"]) for row in rows] == [(one, path) for path in _paths() for one in each[path]]


def _columns(**given: str) -> list[str]:
    return RocketMQSource(given).schema().names


def test_the_columns_are_there_where_several_may_be_read(tmp_path: Path) -> None:
    one = _paths()[0]
    view = list(TABLES["messages"].columns)
    assert _columns(path=one) == view
    assert _columns(path=one, store_columns="true") == [*view, "store", "broker_name"]
    assert _columns(path=one, columns="topic,store") == ["topic", "store"]
    assert _columns(paths=json.dumps(_paths())) == [*view, "store", "broker_name"]
    assert _columns(paths=json.dumps(_paths()), storeColumns="false") == view
    # a pattern may match others tomorrow
    (tmp_path / "broker-a").symlink_to(one)
    assert _columns(path=f"{tmp_path}/broker-*") == [*view, "store", "broker_name"]


def test_a_damaged_store_is_named(golden_store: GoldenStore) -> None:
    store = golden_store("broker-real")
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text('{"offsetTable":{"a@b":{0:', encoding="utf-8")
    paths = json.dumps([_paths()[0], str(store)])
    with pytest.raises(CorruptError, match=f"^{store}/config/consumerOffset.json"):
        _rows(TableSourceReader, ("topic",), view="consumer_offsets", paths=paths)


@pytest.mark.parametrize("view", ["messages", "topics"])
def test_the_machine_that_does_not_see_a_store_is_named(tmp_path: Path, view: str) -> None:
    """As an executor without the driver's mount."""
    store = tmp_path / "store"
    store.symlink_to(_paths()[0])
    options = parse_options({"path": str(store), "view": view})
    schema = view_schema(view)
    reader = (MessageReader if view == "messages" else TableSourceReader)(options, schema)
    part = reader.partitions()[0]
    gone = str(tmp_path / "gone")
    if isinstance(part, SplitPartition):
        part.task = part.task._replace(split=part.split._replace(store=gone))
    else:
        part.store = gone  # type: ignore[attr-defined]
    with pytest.raises(
        NotAStoreError, match=f"there is no such directory on the machine {socket.gethostname()}"
    ) as told:
        list(reader.read(part))
    assert "same path as the driver" in str(told.value.hint)


def test_the_sentence_comes_first() -> None:
    """Before the traceback, wherever Spark shows one, and with what to do next."""
    with pytest.raises(NotAStoreError) as raised:
        RocketMQSource({"path": "/data/nope-*"}).schema()
    shown = "".join(traceback.format_exception(raised.value))
    first = "/data/nope-*: no directory matches this pattern; check the path"
    assert shown.splitlines()[0].partition("Error: ")[2] == first
    assert shown.rstrip().endswith("NotAStoreError: /data/nope-*: no directory matches this pattern")


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_is_of_one_log(option: str) -> None:
    with pytest.raises(UsageError, match="is an offset of one store, and several are read"):
        parse_options({"paths": '["/a", "/b"]', option: "7"})
    assert parse_options({"paths": '["/a", "/b"]', option: "latest"}).several == ("/a", "/b")


def test_tasks_are_shared_out() -> None:
    stores = parse_options({"paths": json.dumps(_paths()), "minPartitions": "9"}).stores()
    assert [one.min_partitions for one in stores] == [5, 5]


def test_spark_hands_over_several_paths(spark: SparkSession, tmp_path: Path) -> None:
    configs = [tmp_path / f"{name}.conf" for name in NAMES]
    for config in configs:
        config.write_text(f"brokerName=broker-{config.stem}\n", encoding="utf-8")
    source = spark.read.format("rocketmq").option("config", json.dumps([str(config) for config in configs]))
    frame = source.option("push_filters", "true").load(_paths())
    counts = {
        (row.store, row.broker_name): row["count"] for row in frame.groupBy("store", "broker_name").count().collect()
    }
    assert counts == {(path, f"broker-{name}"): SIZES[name] for path, name in zip(_paths(), NAMES, strict=True)}
    tasks = frame.rdd.getNumPartitions()
    assert frame.where(f"store = '{_paths()[1]}'").rdd.getNumPartitions() < tasks
    again = source.option("push_filters", "true").load(_paths())
    assert again.where("broker_name = 'broker-features' and size > 0").count() == SIZES["features"]


def test_spark_hands_over_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for path, name in zip(_paths(), NAMES, strict=True):
        (tmp_path / f"broker-{name}").mkdir()
        (tmp_path / f"broker-{name}" / "store").symlink_to(path)
    frame = spark.read.format("rocketmq").load(f"{tmp_path}/broker-*/store")
    assert sorted(row.store for row in frame.select("store").distinct().collect()) == [
        f"{tmp_path}/broker-{name}/store" for name in NAMES
    ]
    with pytest.raises(AnalysisException, match=r"nope-\*: no directory matches this pattern"):
        spark.read.format("rocketmq").load([_paths()[0], f"{tmp_path}/nope-*"])


def test_a_frame_that_is_asked_again_is_read_again(spark: SparkSession) -> None:
    """Spark takes what it planned with one condition for the next question about the same DataFrame."""
    frame = spark.read.format("rocketmq").load(_paths()[0])
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert frame.where("physical_offset < 20000").count() < 100
    assert frame.count() == SIZES["clean"]
    few, many = frame.where("physical_offset < 20000"), frame.where("topic = 'TopicTest'")
    assert many.join(few, few.topic != many.topic).select(many.physical_offset).distinct().count() == sum(
        row["topic"] == "TopicTest" for row in truth("clean").messages
    )
