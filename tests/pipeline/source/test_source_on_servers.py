"""Stores on servers as a source: planning lists once, tasks list nothing, a stream lists the log with each batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.pipeline.spark.options import parse_options, view_schema
from rmqctl.pipeline.spark.source import MessageReader, TableSourceReader
from rmqctl.pipeline.spark.split_task import SplitPartition
from tests.goldens import truth
from tests.opened import store_path
from tests.pipeline.growing import Writer
from tests.pipeline.streams.querying import Query, all_of
from tests.store.remote.served import served

ADDRESSES = ("s3://bucket/brokers/a/store", "s3://bucket/brokers/b/store")


def _rows(kind: Any, names: tuple[str, ...], **given: str) -> tuple[Any, list[Any]]:
    options = parse_options({"path": ADDRESSES[0], "columns": ",".join(names), **given})
    reader = kind(options, view_schema(options.view, names))
    return reader, list(reader.partitions())


def test_a_query_lists_once_and_its_tasks_nothing() -> None:
    wanted = [int(row["phyOffset"]) for row in truth("clean").messages]
    with served(store_path("clean"), ADDRESSES[0]) as (server, _):
        for _ in range(2):
            server.listings.clear()
            reader, tasks = _rows(MessageReader, ("physical_offset",), split_size="100k")
            assert server.listings == [ADDRESSES[0]]
            for task in tasks:
                assert isinstance(task, SplitPartition)
                # as in a process of an executor
                task.task = task.task._replace(split=task.split._replace(listing="another"))
            batches = [batch for task in tasks for batch in reader.read(task)]
            assert [one for batch in batches for one in batch.column(0).to_pylist()] == wanted
            assert server.listings == [ADDRESSES[0]]
            server.listings.clear()
            server.reads.clear()


def test_tasks_over_queues_list_once_in_a_process() -> None:
    with served(store_path("clean"), ADDRESSES[0]) as (server, _):
        reader, tasks = _rows(TableSourceReader, ("topic",), view="consumequeue")
        server.listings.clear()
        for task in tasks * 2:
            task.listing = "another"
            list(reader.read(task))
        assert server.listings == [ADDRESSES[0]]


def test_a_stream_sees_what_comes_to_a_server(tmp_path: Path) -> None:
    """Each look lists the logs of its stores, two requests, and nothing else of them."""
    writers = [Writer(tmp_path / name, clock=1_700_000_000_000 + number * 10**6) for number, name in enumerate("ab")]
    for writer in writers:
        writer.put_many(20)
        (writer.store / "consumequeue" / "T" / "0").mkdir(parents=True)
    with served(writers[0].store, ADDRESSES[0]) as (server, _), served(writers[1].store, ADDRESSES[1]) as (other, _):
        query = Query('["' + '","'.join(ADDRESSES) + '"]')
        assert _of(query.go_on()) == _of(all_of(writers))
        server.listings.clear()
        other.listings.clear()
        # the first file grows, and others come
        writers[0].put_many(200)
        end = query.plan()
        assert server.listings == [f"{ADDRESSES[0]}/commitlog"]
        assert other.listings == [f"{ADDRESSES[1]}/commitlog"]
        assert _of(query.carry_out(end)) == _of(all_of(writers[:1], 20))
        writers[0].cut(writers[0].offsets[150])
        writers[0].put_many(90)
        with pytest.raises(UnreadableError, match=f"{ADDRESSES[0]}: the log had been read up to .* was cut back"):
            query.go_on()


def _of(found: list[tuple[str, int]]) -> list[int]:
    return [offset for _, offset in found]
