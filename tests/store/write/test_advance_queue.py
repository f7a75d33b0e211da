"""Copies that keep their queue offsets: queues that begin later, and gaps in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.store.write.writing import SMALL, message


def test_offsets_go_on_behind_a_gap(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, "rw", SMALL, create=True) as store:
        store.advance_queue("TopicA", 0, 205)
        assert [store.put(message()).queue_offset for _ in range(2)] == [205, 206]
        store.advance_queue("TopicA", 0, 310)
        assert [result.queue_offset for result in store.put_many([message(), message()])] == [310, 311]
        assert store.put(message(queue_id=1)).queue_offset == 0
    with StoreFiles(tmp_path, SMALL) as files:
        queue = files.queues.find("TopicA", 0)
        assert queue is not None
        written = [unit.queue_offset for unit in queue.units(0) if unit.is_written]
        filled = [unit.queue_offset for unit in queue.units(0) if unit.is_placeholder]
        assert written == [205, 206, 310, 311]
        # a queue begins with the file of its first unit: 100 of them in a file
        assert filled == [*range(200, 205), *range(207, 310)]
        assert queue.max_offset == 312


def test_no_offset_is_given_twice(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, "rw", SMALL, create=True) as store:
        store.put_many([message()] * 3)
        store.advance_queue("TopicA", 0, 3)
        with pytest.raises(RefusedError, match="is at 3 already"):
            store.advance_queue("TopicA", 0, 2)
        assert store.put(message()).queue_offset == 3
