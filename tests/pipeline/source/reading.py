"""Reads messages as a task of the data source does, without Spark, and counts what is read of files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqctl.pipeline.queue_pruning import split_batches
from rmqctl.pipeline.spark import planning
from rmqctl.pipeline.spark.options import SourceOptions
from rmqctl.pipeline.splits import open_split
from rmqctl.pipeline.wanted import Wanted
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, broker_conf, properties
from tests.opened import store_path

WITH_LOGS = [name for name in GOLDENS if "log-gone" not in name]
"""Golden stores with something to read."""
REPRESENTATIVE = (
    "clean", "v4-clean", "features", "crash", "gap", "crc-flip-third", "torn-zero", "index-lost", "index-garbage",
    "noindex", "cq-truncated", "lmq", "innerbatch", "broker-real", "rocksdb", "multipath", "first-gone",
)  # fmt: skip
"""Those among them that differ in what queues and index hold."""


def options_of(name: str, **given: Any) -> SourceOptions:
    """For a golden store; small splits unless others are given."""
    path = store_path(name)
    config = str(broker_conf(name, path.parent)) if "store.storePathCommitLog" in properties(name) else None
    return SourceOptions(str(path), config, **{"split_size": 1 << 20, **given})


def found(options: SourceOptions, wanted: Wanted, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], list[bool]]:
    """The rows that are not left out, columns `names`, and of each task whether it read spans only."""
    with StoreFiles(Path(options.path), options.store_config()) as files:
        tasks = planning.plan_tasks(files, options, wanted)
    rows: list[tuple[Any, ...]] = []
    spanned: list[bool] = []
    for task in tasks:
        with open_split(task.split) as files:
            spans = planning.spans_of(files, task, wanted)
            spanned.append(spans is not None)
            for batch in split_batches(files, task.split, names, wanted, spans=spans):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows, spanned


class BytesRead:
    """Counts the bytes that are read from files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread, preadv = os.pread, os.preadv

        def counted_pread(*given: Any) -> bytes:
            data = pread(*given)
            self.bytes += len(data)
            return data

        def counted_preadv(*given: Any) -> int:
            length = preadv(*given)
            self.bytes += length
            return length

        monkeypatch.setattr(os, "pread", counted_pread)
        monkeypatch.setattr(os, "preadv", counted_preadv)
