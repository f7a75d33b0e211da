"""Messages at known places as columns: all of them, and nothing for places where something else is."""

from __future__ import annotations

import numpy as np

from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.column_walk import columns_at
from rmqctl.store.log.columns import TopicIds
from rmqctl.store.log.walk import walk
from rmqctl.store.native.tables import Columns
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore


def test_every_other_message_and_places_that_are_none(golden_store: GoldenStore) -> None:
    with StoreFiles(golden_store("clean")) as files:
        messages = [one for one in walk(files.log) if isinstance(one, StoredMessage)][::2]
        places = np.array([one.physical_offset for one in messages])
        sizes = np.array([one.total_size for one in messages])
        wrong = {3, 400, len(messages) - 1}
        places[3] += 1
        sizes[400] -= 4
        sizes[-1] = 0
        asked = Columns.HEAD | Columns.TOPIC | Columns.BYTES
        found: dict[int, tuple[str, int]] = {}
        seen: list[int] = []
        for part, batch in columns_at(files.log, places, sizes, TopicIds(), asked):
            seen += range(part.start, part.stop)
            if batch is not None:
                for row, number in enumerate(range(part.start, part.stop)):
                    found[number] = batch.topic(row), int(batch.queue_offset[row])
    assert seen == list(range(len(messages)))
    assert not wrong & found.keys()
    assert len(found) > len(messages) // 2
    assert all(found[number] == (messages[number].topic, messages[number].queue_offset) for number in found)
