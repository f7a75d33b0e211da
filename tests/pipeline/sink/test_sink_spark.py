"""`df.write.format("rocketmq")` and `writeStream`: what was read comes back the same, a stream's messages once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rmqctl.formats.errors import StoreInUseError, WriteFailedError
from rmqctl.formats.message import StoredMessage
from rmqctl.pipeline.sink import writers
from rmqctl.pipeline.sink.options import parse_sink_options
from rmqctl.store.message_store import MessageStore
from tests.opened import store_path
from tests.pipeline.growing import Writer
from tests.store.write.writing import FILE_SIZE, stored_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SMALL = f"mappedFileSizeCommitLog={FILE_SIZE}\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=100\nmaxIndexNum=400\n"


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "broker.conf"
    path.write_text(_SMALL)
    return str(path)


def _whole(root: Path) -> list[StoredMessage]:
    """The messages of a store in which nothing is wrong, beside which nothing is left."""
    with MessageStore.open(root) as store:
        assert [finding.code for finding in store.check()] == []
    assert [path.name for path in root.parent.iterdir() if path.name.startswith(".")] == []
    return stored_messages(root)


def _kept(message: StoredMessage, *, as_stored: bool) -> tuple[Any, ...]:
    """What a write keeps of a message."""
    kept = (
        message.topic, message.queue_id, message.flag, message.sys_flag, message.born_timestamp, str(message.born_host),
        message.reconsume_times, message.prepared_transaction_offset, message.body, message.property_bytes,
    )  # fmt: skip
    return (*kept, message.store_timestamp, str(message.store_host)) if as_stored else kept


@pytest.mark.parametrize("as_stored", [False, True])
@pytest.mark.parametrize("name", ["clean", "features", "v4-clean"])
def test_what_was_read_comes_back_the_same(
    spark: SparkSession, tmp_path: Path, conf: str, name: str, as_stored: bool
) -> None:
    frame = spark.read.format("rocketmq").option("split_size", "200k").load(str(store_path(name)))
    assert frame.rdd.getNumPartitions() > 3
    options = {"config": conf.replace("broker.conf", "none") if name == "features" else conf}
    del options["config"]
    frame.write.format("rocketmq").mode("append").option("as_stored", str(as_stored)).save(str(tmp_path / "copy"))
    found, wanted = _whole(tmp_path / "copy"), stored_messages(store_path(name))
    assert [_kept(one, as_stored=as_stored) for one in found] == [_kept(one, as_stored=as_stored) for one in wanted]
