"""A real query with a checkpoint over a real store that is written to, rolls, is cleaned, is cut and grows again."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from rmqctl.formats.message import Message
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.recover import truncate
from rmqctl.store.store_files import StoreFiles
from tests.pipeline.cluster import wait_for
from tests.store.write.writing import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_READER = b"python_streaming_source_runner"


class Writing:
    """Whoever writes to the store: a thread, and for changes the process itself. `keys` by physical offset."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._enough = threading.Event()
        self.keys: dict[int, str] = {}
        self.store = MessageStore.open(root, "rw", SMALL, create=True)

    def put(self, count: int) -> list[str]:
        """Append so many messages of a kilobyte; returns their keys."""
        made: list[str] = []
        for _ in range(count):
            key = f"k{len(self.keys)}-{len(made)}-{os.urandom(4).hex()}"
            result = self.store.put(Message(topic="T", body=b"b" * 1000, queue_id=0, properties={"KEYS": key}))
            assert result.physical_offset is not None
            self.keys[result.physical_offset] = key
            made.append(key)
        return made

    def __enter__(self) -> Writing:
        self._enough.clear()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._enough.wait(0.05):
            self.put(1)

    def cut(self, messages: int) -> list[str]:
        """Take the last messages away; returns their keys."""
        self.store.close()
        at = sorted(self.keys)[-messages]
        with StoreFiles(self._root, SMALL) as files:
            truncate(files, at, change=ChangeOptions(keep_undo=False))
        self.store = MessageStore.open(self._root, "rw", SMALL)
        return [self.keys.pop(offset) for offset in sorted(self.keys) if offset >= at]

    def clean(self) -> int:
        """Remove all files but the last; returns how many."""
        self.store.close()
        with MessageStore.open(self._root, "r", SMALL) as store:
            removed = len(store.clean(CleanOptions(at_once=True)).removed)
        self.store = MessageStore.open(self._root, "rw", SMALL)
        return removed


class Query:
    """One query, started as often as needed: always the same checkpoint and the same sink."""

    def __init__(self, spark: SparkSession, folder: Path, path: str | None = None) -> None:
        """`path`: the stores, if it is not the one in the folder."""
        self._spark = spark
        self._folder = folder
        self._path = path or str(folder / "store")

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        source = self._spark.readStream.format("rocketmq").options(columns="keys", max_bytes="200k", **options)
        keys = source.load(self._path).selectExpr("keys[0] key")
        sink = keys.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        sink = sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime="500 milliseconds")
        return sink.start(str(self._folder / "sink"))

    def take(self, **options: str) -> None:
        """Read what is there."""
        assert self.start(available_now=True, **options).awaitTermination(120)

    def read(self) -> Counter[str]:
        return Counter(row.key for row in self._spark.read.parquet(str(self._folder / "sink")).collect())


def _readers() -> Iterator[int]:
    """The processes that read positions for this session's queries."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    for process in parents:
        above = process
        while above in parents and above != os.getpid():
            above = parents[above]
        try:
            if above == os.getpid() and _READER in Path(f"/proc/{process}/cmdline").read_bytes():
                yield process
        except OSError:
            continue


def test_each_message_once_through_roll_clean_kill_and_cut(spark: SparkSession, tmp_path: Path) -> None:
    writing = Writing(tmp_path / "store")
    query = Query(spark, tmp_path)
    running = query.start()
    with writing:
        wait_for(lambda: len(running.recentProgress) > 1)
        for reader in _readers():
            os.kill(reader, signal.SIGKILL)
        with pytest.raises(StreamingQueryException):
            running.awaitTermination(90)
        running = query.start()
        wait_for(lambda: len(running.recentProgress) > 1)
    writing.put(100)
    running.processAllAvailable()
    running.stop()
    assert writing.clean() > 0
    writing.put(80)  # more than will be cut away
    query.take()
    assert query.read() == Counter(writing.keys.values())

    gone = writing.cut(50)
    new = writing.put(120)
    with pytest.raises(StreamingQueryException, match=r"was cut back since: it is the same up to .*on_changed_log"):
        query.take()
    query.take(on_changed_log="fork")
    writing.store.close()
    found = query.read()
    assert found.keys() == {*writing.keys.values(), *gone}
    assert {found[key] for key in (*new, *gone)} == {1}
    again = [key for key, times in found.items() if times > 1]
    kept = [key for key in writing.keys.values() if key not in new]
    assert sorted(again) == sorted(kept[len(kept) - len(again) :])
    assert len(again) < len(gone)
