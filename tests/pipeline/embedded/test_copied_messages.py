"""The view `copied_messages`: with `messages` it has every message that RocketMQ's truth says was stored or kept."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.pipeline.sql.duckdb import embedded_sql
from rmqctl.pipeline.sql.spark import StoreSql
from rmqctl.store.config.tiered_table import TABLE
from tests.goldens import LogGolden, log_golden
from tests.rmqctl.looking import run
from tests.store.read.test_compacted import expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLACES = "select topic, queue_id, queue_offset"


def _without_first_file(golden: LogGolden, folder: Path, topic: str) -> Path:
    """A copy of a store after so many messages more that the file with all of the copied ones could go."""
    store = golden.copied_to(folder / "store")
    lines = [json.dumps({"topic": topic, "queue_id": 1, "body": "x" * 3000 + str(number)}) for number in range(150)]
    (folder / "more").write_text("\n".join(lines))
    assert run("append", "-s", store, "--from", folder / "more").code == 0
    (store / "commitlog" / f"{0:020d}").unlink()
    return store


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogGolden, Path]:
    folder = tmp_path_factory.mktemp("copied")
    golden = log_golden("v55-tiered", folder)
    return golden, _without_first_file(golden, folder, "TopicTest")


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogGolden, Path]:
    folder = tmp_path_factory.mktemp("copied")
    golden = log_golden("v55-compacted", folder)
    return golden, _without_first_file(golden, folder, "CompactTopic")


def _asked(store: Path, statement: str) -> list[dict[str, Any]]:
    with embedded_sql(str(store)) as views:
        rows: list[dict[str, Any]] = views.answer(statement).to_pylist()
        return rows


def test_what_tiered_storage_alone_has_is_what_was_stored(tiered: tuple[LogGolden, Path]) -> None:
    golden, store = tiered
    truth = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in golden.rows("msg")}
    rows = _asked(store, "select * from copied_messages")
    assert len(rows) == 190
    for row in rows:
        wanted = truth[row["topic"], row["queue_id"], row["queue_offset"]]
        properties = dict(row["properties"])
        assert (hashlib.sha256(row["body"]).hexdigest() if row["body"] else None) == wanted["bodySha256"]
        assert (row["size"], row["tags"], row["copy"]) == (wanted["storeSize"], wanted["tags"], "tiered")
        assert properties == wanted["properties"]
        assert row["unique_key"] == properties.get("UNIQ_KEY")
        assert row["store_timestamp"].timestamp() * 1000 == pytest.approx(wanted["storeTimestamp"])
    printed = list(run("cat", "--tiered", "-s", store, "-t", "TopicTest", "--json").objects)
    of_both = _asked(store, f"{_PLACES} from messages union all {_PLACES} from copied_messages")
    assert sorted((row["queue_id"], row["queue_offset"]) for row in printed) == sorted(
        (row["queue_id"], row["queue_offset"]) for row in of_both if row["topic"] == "TopicTest"
    )


def test_a_lost_table_loses_no_row(tiered: tuple[LogGolden, Path]) -> None:
    _, store = tiered
    counted = _asked(store, "select count(*) n from copied_messages")
    table = store / "config" / TABLE
    table.rename(table.with_suffix(".away"))
    try:
        assert _asked(store, "select count(*) n from copied_messages") == counted
    finally:
        table.with_suffix(".away").rename(table)


def test_what_the_commitlog_has_is_no_copy_alone_where_a_queue_is_lost(tmp_path: Path) -> None:
    store = log_golden("v55-tiered", tmp_path).store
    assert _asked(store, "select * from copied_messages") == []
    shutil.rmtree(store / "consumequeue/OrderTopic")
    assert _asked(store, "select * from copied_messages") == []


def test_what_a_compaction_log_alone_has_is_what_it_kept(compacted: tuple[LogGolden, Path]) -> None:
    golden, store = compacted
    truth = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in golden.rows("msg")}
    rows = _asked(store, "select * from copied_messages")
    found = {(row["queue_id"], row["queue_offset"]) for row in rows}
    assert len(found) == len(rows) > 50
    assert {row["copy"] for row in rows} == {"compaction"}
    for row in rows:
        wanted = truth[row["topic"], row["queue_id"], row["queue_offset"]]
        assert (hashlib.sha256(row["body"]).hexdigest() if row["body"] else None) == wanted["bodySha256"]
    begin = {
        row["queue_id"]: row["first"]
        for row in _asked(
            store, "select queue_id, min(queue_offset) as first from messages where topic = 'CompactTopic' group by 1"
        )
    }
    for queue_id, queue_offset in expected(golden):
        assert ((queue_id, queue_offset) in found) == (queue_offset < begin.get(queue_id, 1 << 62))


@pytest.mark.parametrize("name", ["tiered", "compacted"])
def test_spark_has_the_same(name: str, spark: SparkSession, request: pytest.FixtureRequest) -> None:
    _, store = request.getfixturevalue(name)
    asked = "select * from copied_messages order by topic, queue_id, queue_offset"
    with embedded_sql(str(store)) as here:
        found = here.answer(asked)
    wanted = StoreSql(spark, str(store)).answer(asked)
    assert found.num_rows == wanted.num_rows > 50
    assert found.column_names == wanted.column_names
    for column in found.column_names:
        assert list(map(str, found[column].to_pylist())) == list(map(str, wanted[column].to_pylist())), column
