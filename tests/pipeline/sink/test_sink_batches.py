"""Micro-batches that come again, and what killed writes have left: each message is there once, or the user decides."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.pipeline.spark.sink import write_staged
from rmqctl.pipeline.spark.sink_record import (
    BegunWrite,
    MicroBatch,
    WriteRecord,
    read_record,
    record_path,
    write_record,
)
from rmqctl.store.message_store import MessageStore
from tests.pipeline.sink.staged import FIRST, LAYOUT, bodies, named, table, task, whole
from tests.store.write.writing import SMALL, stored_messages


def test_a_micro_batch_that_comes_again_is_not_stored_again(store: Path) -> None:
    rows = [task(store, 0, named(1, 4))]
    assert write_staged(store, SMALL, rows, batch=FIRST).stored_before
    assert not write_staged(store, SMALL, rows, batch=MicroBatch("another", 3)).stored_before
    assert not write_staged(store, SMALL, rows, batch=MicroBatch("query", 4)).stored_before
    assert write_staged(store, SMALL, rows, batch=MicroBatch("another", 3)).stored_before
    assert [one.body for one in whole(store)] == [*named(0, 5), *named(1, 4), *named(1, 4)]
    queries = read_record(LAYOUT(store)).queries
    assert {name: one.batch_id for name, one in queries.items()} == {"query": 4, "another": 3}
    assert queries["query"].begin == queries["another"].end
    assert stored_messages(store)[-1].end == queries["query"].end


def test_a_checkpoint_that_was_set_back_is_not_passed_in_silence(store: Path) -> None:
    with pytest.raises(RefusedError, match="has stored here is 3, and now comes 2"):
        write_staged(store, SMALL, [task(store, 0, named(1, 4))], batch=MicroBatch("query", 2))
    assert bodies(store) == named(0, 5)


def test_a_micro_batch_that_was_cut_off_is_not_taken_for_stored(store: Path) -> None:
    with MessageStore.open(store) as opened:
        opened.truncate(stored_messages(store)[3].physical_offset)
    with pytest.raises(RefusedError, match="the log was cut back to"):
        write_staged(store, SMALL, [task(store, 0, named(0, 5))], batch=FIRST)
    assert bodies(store) == named(0, 3)


def _half_written(store: Path) -> int:
    """A write that has begun, puts a message, and is killed: where it began. `abort` has our own process's id."""
    begin = sum(one.total_size for one in stored_messages(store))
    write_staged(store, SMALL, [task(store, 0, [b"half"])])
    (store / "abort").write_text(str(os.getpid()))
    record = read_record(LAYOUT(store))
    lock_time = (store / "lock").stat().st_mtime_ns
    write_record(
        LAYOUT(store), record._replace(begun=BegunWrite(os.getpid(), lock_time, begin, batch=MicroBatch("query", 4)))
    )
    return begin


def test_what_a_killed_write_left_goes(store: Path) -> None:
    _half_written(store)
    write_staged(store, SMALL, [task(store, 0, named(1, 2))], batch=MicroBatch("query", 4))
    assert [one.body for one in whole(store)] == [*named(0, 5), *named(1, 2)]


def test_what_was_recovered_meanwhile_is_the_users_to_cut(store: Path) -> None:
    begin = _half_written(store)
    with MessageStore.open(store) as opened:
        opened.recover()
    rows = [task(store, 0, named(1, 2))]
    with pytest.raises(RefusedError, match="recovered or used since") as refused:
        write_staged(store, SMALL, rows, batch=MicroBatch("query", 4))
    assert refused.value.hint is not None
    assert f"`rmqctl truncate --at {begin}`" in refused.value.hint
    assert bodies(store) == [*named(0, 5), b"half"]
    with MessageStore.open(store) as opened:
        opened.truncate(begin)
    write_staged(store, SMALL, rows, batch=MicroBatch("query", 4))
    assert [one.body for one in whole(store)] == [*named(0, 5), *named(1, 2)]


def test_nothing_is_cut_where_a_broker_was_started_since(store: Path) -> None:
    """It writes into `lock`, and a broker of 4.x that is killed then leaves an `abort` as it was."""
    _half_written(store)
    (store / "lock").write_text("lock")
    with pytest.raises(RefusedError, match="recovered or used since"):
        write_staged(store, SMALL, [task(store, 0, named(1, 2))])
    assert bodies(store) == [*named(0, 5), b"half"]


def test_a_write_that_only_lacked_its_end_is_brought_to_it(store: Path) -> None:
    begin = _half_written(store)
    record = read_record(LAYOUT(store))
    assert record.begun is not None
    end = stored_messages(store)[-1].end
    write_record(
        LAYOUT(store), record._replace(begun=record.begun._replace(begin=begin, end=end, topics={"TopicZ": 2}))
    )
    assert write_staged(store, SMALL, [task(store, 0, [b"half"])], batch=MicroBatch("query", 4)).stored_before
    assert [one.body for one in whole(store)] == [*named(0, 5), b"half"]
    assert table(store)["TopicZ"]["readQueueNums"] == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "begun": {"a": 1}, "queries": {}}'])
def test_a_damaged_record_is_said(store: Path, text: str) -> None:
    record_path(LAYOUT(store)).write_text(text)
    with pytest.raises(CorruptError, match="no record of writes"):
        write_staged(store, SMALL, [task(store, 0, named(1, 2))])
    assert bodies(store) == named(0, 5)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    layout = LAYOUT(tmp_path)
    record = WriteRecord(BegunWrite(7, 8, 9, 10, {"T": 4}, FIRST), read_record(layout).queries)
    write_record(layout, record)
    assert read_record(layout) == record
    assert json.loads(record_path(layout).read_text())["begun"]["batch"] == {"batch_id": 3, "query": "query"}
    assert read_record(layout).ended().queries == {"query": (3, 9, 10)}
