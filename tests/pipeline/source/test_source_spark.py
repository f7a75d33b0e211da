"""`spark.read.format("rocketmq")`: what RocketMQ sees in the golden stores, whatever is split and pushed down."""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from rmqctl.store.info.info import queue_row
from rmqctl.store.options import Events
from rmqctl.store.scan.scan import Scan
from rmqctl.store.scan.schema import COLUMNS
from tests.goldens import admin, properties, truth
from tests.opened import damaged_messages, known_messages, reader, store_path
from tests.store.scan.rows import arrow_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
WHOLE = ("clean", "features", "v4-features", "broker-real")
BROKEN = ("crc-flip-old", "gap", "first-gone", "torn-zero", "short-middle")


def _load(spark: SparkSession, name: str, view: str = "messages", **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(view=view, **options).load(str(store_path(name)))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return arrow_rows(batch for batch in table.to_batches() if batch.num_rows)


@pytest.mark.parametrize("name", [*WHOLE, "innerbatch", "lmq", "rocksdb", "propcrc"])
def test_messages_are_those_of_rocketmq(spark: SparkSession, name: str) -> None:
    columns = "physical_offset,topic,queue_id,queue_offset,size,msg_id,store_timestamp,body,tags,properties,keys"
    found = _rows(_load(spark, name, columns=columns).toArrow())
    wanted = truth(name).messages
    assert [row["physical_offset"] for row in found] == [row["phyOffset"] for row in wanted]
    for row, true in zip(found, wanted, strict=True):
        assert row["topic"] == true["topic"]
        assert (row["queue_id"], row["queue_offset"], row["size"]) == (
            true["queueId"], true["queueOffset"], true["storeSize"],
        )  # fmt: skip
        assert row["msg_id"] == true["msgId"]
        assert row["store_timestamp"] == true["storeTimestamp"] * 1000
        assert hashlib.sha256(row["body"]).hexdigest() == (true["bodySha256"] or hashlib.sha256(b"").hexdigest())
        assert dict(row["properties"]) == true["properties"]
        assert row["tags"] == true["properties"].get("TAGS")
        assert " ".join(row["keys"]) == " ".join(str(true["properties"].get("KEYS", "")).split())


@pytest.mark.parametrize("name", [*WHOLE, *BROKEN])
@pytest.mark.parametrize("split_size", ["0", "100k"])
def test_all_columns_are_those_of_the_scan(spark: SparkSession, name: str, split_size: str) -> None:
    found = _rows(_load(spark, name, split_size=split_size).toArrow())
    wanted = arrow_rows(Scan(reader(name).files.log, views=False).batches(Events(damage=lambda _: None)))
    for row in wanted:
        for time in ("store_timestamp", "born_timestamp"):
            row[time] *= 1000
    assert found == wanted
    assert list(found[0]) == list(COLUMNS)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_stores_lose_no_message_that_is_good(spark: SparkSession, name: str) -> None:
    """What RocketMQ still reaches and finds whole is here, and nothing that was never stored."""
    found = {row.physical_offset for row in _load(spark, name, columns="physical_offset").collect()}
    damaged = damaged_messages(name)
    assert {int(row["phyOffset"]) for row in truth(name).messages} - damaged <= found
    assert found <= known_messages(name).keys() - damaged


@pytest.fixture(params=["true", "false"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.set(PUSHDOWN, str(before))


CONDITIONS: dict[str, Any] = {
    "physical_offset between 300000 and 500000": lambda row: 300_000 <= row["phyOffset"] <= 500_000,
    "physical_offset in (0, 223, 1000000)": lambda row: row["phyOffset"] in (0, 223, 1_000_000),
    "msg_id = '7F00000100002A9F00000000000000DF'": lambda row: row["phyOffset"] == 0xDF,
    "topic = 'OrderTopic' and queue_id > 3": lambda row: row["topic"] == "OrderTopic" and row["queueId"] > 3,
    "topic = 'OrderTopic' and queue_offset between 3 and 9": lambda row: (
        row["topic"] == "OrderTopic" and 3 <= row["queueOffset"] <= 9
    ),
    "queue_offset in (2, 30) and queue_id < 3": lambda row: row["queueOffset"] in (2, 30) and row["queueId"] < 3,
    "physical_offset = 223 and topic is not null": lambda row: row["phyOffset"] == 223,
    "topic in ('a', 'TBW102') or queue_id = 15": lambda row: row["topic"] in ("a", "TBW102") or row["queueId"] == 15,
    "store_timestamp >= timestamp'2026-11-20 23:29:36.500'": lambda row: row["storeTimestamp"] >= 1_795_217_376_500,
    "store_timestamp < timestamp'2026-11-20 23:29:34.500Z'": lambda row: row["storeTimestamp"] < 1_795_217_374_500,
    "store_timestamp = timestamp'2026-11-20 23:29:34.498' and not crc_ok is null": lambda row: (
        row["storeTimestamp"] == 1_795_217_374_498
    ),
    "unique_key in ('FD00000000000000000000000000000257005FFD2B2766E359450102', 'none')": lambda row: (
        row["properties"].get("UNIQ_KEY") == "FD00000000000000000000000000000257005FFD2B2766E359450102"
    ),
    "keys = array('key38')": lambda row: row["properties"].get("KEYS") == "key38",
    "tags is null": lambda row: "TAGS" not in row["properties"],
    "topic = 'no such'": lambda _: False,
    "store_timestamp > timestamp'2030-01-01'": lambda _: False,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_find_what_they_say_pushed_down_or_not(spark: SparkSession, pushdown: bool, condition: str) -> None:
    frame = _load(spark, "clean", split_size="65536", clock_tolerance="0s", push_filters="true").where(condition)
    wanted = [row["phyOffset"] for row in truth("clean").messages if CONDITIONS[condition](row)]
    assert [row.physical_offset for row in frame.select("physical_offset").collect()] == wanted


def test_filters_leave_out_splits(spark: SparkSession) -> None:
    frame = _load(spark, "clean", split_size="65536", clock_tolerance="0s", push_filters="true")
    assert spark.conf.get(PUSHDOWN) == "true"
    tasks = frame.rdd.getNumPartitions()
    assert tasks > 30
    # whole files, through the queues
    assert frame.where("topic = 'a' and queue_id = 0").rdd.getNumPartitions() == len(reader("clean").files.log.files)
    assert frame.where("physical_offset between 100000 and 110000").rdd.getNumPartitions() == 1
    assert frame.where("msg_id = '7F00000100002A9F00000000000000DF'").rdd.getNumPartitions() == 1
    late = frame.where("store_timestamp > timestamp'2026-11-20 23:29:36.500'")
    assert late.rdd.getNumPartitions() < tasks / 2
    # a clock may have been set back by up to an hour unless somebody says otherwise: all of this lies closer together
    careful = _load(spark, "clean", split_size="65536", push_filters="true")
    careful = careful.where("store_timestamp > timestamp'2026-11-20 23:29:36.500'")
    assert careful.rdd.getNumPartitions() == tasks


@pytest.mark.parametrize("name", ["clean", "features", "innerbatch", "v4-cqext", "cq-short"])
def test_units_are_those_of_the_queues(spark: SparkSession, name: str) -> None:
    found = _rows(_load(spark, name, "consumequeue").toArrow())
    sums: Counter[tuple[str, int]] = Counter()
    sizes: Counter[tuple[str, int]] = Counter()
    for row in found:
        if not row["is_expired"]:
            sums[row["topic"], row["queue_id"]] += row["batch_size"]
            sizes[row["topic"], row["queue_id"]] += row["size"]
    looked = [queue_row(reader(name), queue, False) for queue in reader(name).files.queues.all()]
    assert {(row["topic"], row["queue_id"]): row["messages"] for row in looked if row["messages"]} == sums
    assert {(row["topic"], row["queue_id"]): row["bytes"] for row in looked if row["messages"]} == sizes


def test_units_are_those_of_rocketmq(spark: SparkSession) -> None:
    found = {
        (row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"], row["size"], row["tags_code"])
        for row in _rows(_load(spark, "features", "consumequeue").toArrow())
    }
    wanted = {
        (unit["topic"], unit["queueId"], unit["offset"], row["phyOffset"], unit["size"], unit["tagsCode"])
        for row in truth("features").messages
        for unit in row["cq"] or ()
    }
    assert found == wanted


def test_entries_are_those_of_the_index(spark: SparkSession) -> None:
    found = _rows(_load(spark, "clean", "index_entries").toArrow())
    files = reader("clean").files.index.files
    wanted = [
        {
            "file": file.path.name,
            "entry": entry.number,
            "key_hash": entry.key_hash,
            "slot": entry.key_hash % file.geometry.slots,
            "physical_offset": entry.physical_offset,
            "store_timestamp": entry.timestamp * 1000,
            "previous_entry": entry.previous,
            **dict.fromkeys(("topic", "key", "kind")),
        }
        for file in files
        for entry in file.entries()
    ]
    assert len(wanted) > 1000
    assert found == wanted


def test_offsets_of_consumers_are_those_that_the_broker_tells(spark: SparkSession) -> None:
    rows = _load(spark, "broker-real", "consumer_offsets").collect()
    found = {(row.consumer_group, row.topic, row.queue_id): row for row in rows}
    told = admin("broker-real")["consumeStats[broker,consumer,lastTimestamp]"]
    checked = 0
    for group, queues in told.items():
        if isinstance(queues, str):
            continue  # the admin tool could not say
        for queue, (broker_offset, consumer_offset, _) in queues.items():
            topic, _, queue_id = queue.rpartition("/")
            row = found.get((group, topic, int(queue_id)))
            if row is None:
                assert consumer_offset <= 0
                continue
            assert (row.max_offset, row.consumer_offset) == (broker_offset, consumer_offset)
            assert row.lag == broker_offset - consumer_offset
            checked += 1
    assert checked > 10


def test_topics_are_configured_have_queues_or_have_messages(spark: SparkSession) -> None:
    rows = {row.topic: row for row in _load(spark, "broker-real", "topics").collect()}
    messages = truth("broker-real").messages
    logged = Counter(str(row["topic"]) for row in messages)
    assert {topic: row.log_messages for topic, row in rows.items() if row.log_messages} == logged
    queued = Counter(str(unit["topic"]) for row in messages for unit in row["cq"] or ())
    assert {topic: row.queue_messages for topic, row in rows.items() if row.queue_messages} == queued
    pay = rows["Pay"]
    assert (pay.is_configured, pay.read_queue_nums, pay.write_queue_nums, pay.perm) == (True, 4, 4, 6)
    assert pay.message_type == "TRANSACTION"
    assert rows["TBW102"].is_configured
    assert rows["TBW102"].log_messages == 0


def test_queues_in_a_rocksdb(spark: SparkSession) -> None:
    assert properties("rocksdb")["store.storeType"] == "defaultRocksDB"
    with_units = [row for row in truth("rocksdb").queues if row.get("units")]
    rows = _load(spark, "rocksdb", "topics").collect()
    assert sum(row.queues or 0 for row in rows) == len(with_units)
    units = _load(spark, "rocksdb", "consumequeue").collect()
    assert {row.kind for row in units} == {"RocksDBCQ"}
    assert len(units) == sum(row["units"] for row in with_units)


def test_findings_are_those_of_check(spark: SparkSession) -> None:
    from rmqctl.store.check.check import check

    found = [row.asDict() for row in _load(spark, "crc-flip-old", "findings").collect()]
    wanted = [finding.row() for finding in check(reader("crc-flip-old").files)]
    assert [row["code"] for row in found] == [row["code"] for row in wanted]
    assert [row["physical_offset"] for row in found] == [row["physical_offset"] for row in wanted]
    assert any(row["severity"] == "error" for row in found)


def test_times_that_spark_cannot_say_are_null(spark: SparkSession, tmp_path: Any) -> None:
    """No checksum covers the head of a frame, so a message may claim any time."""
    from tests.store.logs import frame

    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    data = b""
    for time in ((1 << 63) - 1, -(1 << 63), 253_402_300_800_000, 1_700_000_000_000):
        data += frame(len(data), store_timestamp=time)
    (folder / f"{0:020d}").write_bytes(data.ljust(4096, b"\0"))
    frame_ = spark.read.format("rocketmq").load(str(tmp_path / "store")).selectExpr("unix_micros(store_timestamp) t")
    assert [row.t for row in frame_.collect()] == [None, None, 253_402_300_800_000_000, 1_700_000_000_000_000]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colums": "topic"}, "no option 'colums'"),
        ({"columns": "topik"}, "no column 'topik'"),
        ({"view": "nope"}, "no view 'nope'"),
    ],
)
def test_wrong_options_are_said(spark: SparkSession, options: dict[str, str], said: str) -> None:
    with pytest.raises(AnalysisException, match=said):
        spark.read.format("rocketmq").options(**options).load(str(store_path("clean"))).collect()


def test_what_is_no_store_is_said(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"NotAStoreError: .*there is no such directory"):
        spark.read.format("rocketmq").load("/no/such/store")


def test_a_schema_of_ones_own_has_to_be_the_views(spark: SparkSession) -> None:
    source = spark.read.format("rocketmq").schema("topic string, size int")
    assert source.load(str(store_path("clean"))).count() == 2500
    with pytest.raises(AnalysisException, match="no column size of type string"):
        spark.read.format("rocketmq").schema("size string").load(str(store_path("clean"))).count()


def test_a_broker_conf_says_where_the_files_are(spark: SparkSession, tmp_path: Any) -> None:
    from tests.goldens import broker_conf

    path = store_path("multipath")
    conf = broker_conf("multipath", path.parent)
    count = spark.read.format("rocketmq").options(config=str(conf)).load(str(path)).count()
    assert count == len(truth("multipath").messages)


def test_moments_are_moments(spark: SparkSession) -> None:
    row = _load(spark, "clean", columns="store_timestamp").orderBy("store_timestamp").first()
    assert row is not None
    wanted = min(int(one["storeTimestamp"]) for one in truth("clean").messages)
    assert row.store_timestamp.astimezone(datetime.UTC).timestamp() * 1000 == wanted


def test_a_query_fails_at_damage_on_demand(spark: SparkSession) -> None:
    def rows(**options: str) -> int:
        return _load(spark, "crc-flip-old", columns="topic", **options).count()

    assert rows() == rows(fail_on_damage="false") > 0
    with pytest.raises(Exception, match="damaged up to"):
        rows(failOnDamage="true")
    assert _load(spark, "clean", columns="topic", fail_on_damage="true").count() > 0
