"""Rows put to a store, through all of it: where they come to stand, what is told of them, and when they are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqctl.formats.errors import WriteFailedError
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from rmqctl.store.write import dispatch as reput
from rmqctl.store.write.dispatch import CheckpointKeeper
from tests.store.write.writing import (
    FILE_SIZE,
    NEVER,
    SMALL,
    body_that_leaves,
    message,
    small,
    stored_messages,
    wait_until,
)


def rows_of(count: int) -> pa.RecordBatch:
    """So many messages of one queue."""
    return pa.record_batch({"topic": ["TopicA"] * count, "body": [str(number) for number in range(count)]})


def test_of_rows_for_a_new_queue_the_first_alone_becomes_a_message(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: now) as store:
        assert list(store.put_columns(rows_of(5)).answers) == [0]
        assert list(store.put_columns(rows_of(5)).answers) == []


def test_rows_fill_a_file_as_single_messages_do(tmp_path: Path) -> None:
    """To the byte that a blank frame needs; the row before one that does not fit any more stays in the file."""
    first, overhead = 1000, 91 + len("TopicA")
    for left in (7, 8):
        sizes = [first, 100, body_that_leaves(left, 2 * overhead + first + 100), 50, 60]
        messages = [message(size) for size in sizes]
        with MessageStore.open(tmp_path / f"rows {left}", "rw", SMALL, create=True) as store:
            places = [store.put(messages[0]).physical_offset]
            batch = pa.record_batch({"topic": ["TopicA"] * 4, "body": [bytes(one.body) for one in messages[1:]]})
            places += store.put_columns(batch).physical_offset.tolist()
        with MessageStore.open(tmp_path / f"single {left}", "rw", SMALL, create=True) as store:
            assert places == [store.put(one).physical_offset for one in messages]
        assert (FILE_SIZE in places, places[1]) == (True, overhead + first)


def test_rows_can_be_read_without_anybody_waiting_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "_INTERVAL_MS", NEVER)
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True) as store:
        for count in (3, 6):
            store.put_columns(rows_of(3))
            wait_until(lambda count=count: len(store.get("TopicA", 0, 0).messages) == count)  # type: ignore[misc]


@pytest.mark.parametrize("as_stored", [False, True])
def test_rows_from_the_past_lower_the_checkpoint_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_stored: bool
) -> None:
    """New ones where the clock was set back; copies to the earliest time that follows a later one, until what went
    back last is covered."""
    now = 1_700_000_000_000
    lowered: list[tuple[int, int]] = []
    monkeypatch.setattr(CheckpointKeeper, "lower", lambda _, *given: lowered.append(given))
    times = [now, now, now - 10, now - 5, now - 20, now, now - 1, now + 3]
    batch = rows_of(len(times)).append_column("store_timestamp", pa.array(times))
    with MessageStore.open(tmp_path / "s", "rw", SMALL, create=True, clock=lambda: now) as store:
        store.put(message())
        if not as_stored:
            now -= 7
        places = store.put_columns(batch, as_stored=as_stored).physical_offset.tolist()
        assert lowered == ([(now - 20, places[6])] if as_stored else [(now, places[0])])
        later = [one.store_timestamp for one in stored_messages(tmp_path / "s")[1:]]
        assert later == (times if as_stored else [now] * len(times))


def test_a_store_that_failed_or_whose_disk_is_too_full_takes_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path / "s", "rw", SMALL, create=True)
    assert store.put_columns(rows_of(3)).stored == 3
    headroom = store._writing._services.headroom
    headroom.is_over_ratio = True
    store._writing._puts.close_window()  # room that was counted before is still given away
    results = [store.put_columns(rows_of(3))]
    headroom.is_over_ratio = False
    # what is known of the disk is too old by now, and in truth nothing is left
    headroom.admit(1 << 40)
    monkeypatch.setattr(io, "free_bytes", lambda _path: 0)
    results.append(store.put_columns(rows_of(3)))
    monkeypatch.undo()
    headroom.admit(1 << 40)
    assert store.put_columns(rows_of(1)).stored == 1
    end = store._writing._appender.end_offset
    store._writing._state.fail(WriteFailedError("it failed"))
    results.append(store.put_columns(rows_of(3)))
    statuses = [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.DISK_FULL, PutStatus.SERVICE_NOT_AVAILABLE]
    for result, status in zip(results, statuses, strict=True):
        assert (result.stored, [one.status for one in result.refused.values()]) == (0, [status] * 3)
    assert store._writing._appender.end_offset == end
    with pytest.raises(WriteFailedError, match="it failed"):
        store.close()


@pytest.mark.parametrize("changes", [{"flush_disk_type": "SYNC_FLUSH"}, {"enabled_append_prop_crc": True}], ids=str)
def test_rows_of_several_queues_stand_for_themselves_where_nothing_is_fast(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    batch = pa.record_batch({"topic": ["T", "U", "T"], "body": ["1", "2", "3"], "queue_id": [0, 0, 1]})
    with MessageStore.open(tmp_path / "s", "rw", small(**changes), create=True) as store:
        result = store.put_columns(batch)
        assert (result.stored, result.queue_offset.tolist()) == (3, [0, 0, 0])
