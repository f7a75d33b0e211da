"""What Spark does with a reader of several stores: positions through JSON, batches planned, read and committed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from rmqctl.pipeline.spark.options import parse_options, view_schema
from rmqctl.pipeline.spark.stream import MessageStreamReader
from tests.pipeline.growing import Writer

COLUMNS = ("store", "physical_offset")
Found = list[tuple[str, int]]


def reader_of(writers: Iterable[Writer] | str, **options: str) -> MessageStreamReader:
    """Over the stores of the writers, or a path or pattern."""
    path = writers if isinstance(writers, str) else json.dumps([str(writer.store) for writer in writers])
    asked = parse_options({"path": path, "columns": ",".join(COLUMNS), **options})
    return MessageStreamReader(asked, view_schema("messages", COLUMNS))


class Query:
    """One query: `position` is where it stands."""

    def __init__(self, writers: Iterable[Writer] | str, **options: str) -> None:
        self.restart(writers, **options)
        self.position = through_json(self.reader.initialOffset())

    def restart(self, writers: Iterable[Writer] | str, **options: str) -> None:
        self.reader = reader_of(writers, **options)

    def plan(self, limit: ReadLimit | None = None) -> dict[str, Any]:
        return through_json(self.reader.latestOffset(self.position, limit or ReadAllAvailable()))

    def carry_out(self, end: dict[str, Any]) -> Found:
        found: Found = []
        for partition in self.reader.partitions(self.position, end):
            for batch in self.reader.read(partition):
                found += zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
        self.position = end
        return found

    def go_on(self, limit: ReadLimit | None = None) -> Found:
        found: Found = []
        while (end := self.plan(limit)) != self.position:
            found += self.carry_out(end)
        return found


def through_json(content: object) -> dict[str, Any]:
    """As it comes out of a checkpoint."""
    return dict(json.loads(json.dumps(content)))


def all_of(writers: Iterable[Writer], first: int = 0) -> Found:
    """The messages of the writers but the first of each."""
    return [(str(writer.store), offset) for writer in writers for offset in writer.offsets[first:]]
