"""Neighbours read together are what each is by itself: the same bytes, messages, statuses and damage."""

from __future__ import annotations

import itertools

import pytest

from rmqctl.store.read import get
from rmqctl.store.read.frames import frame_at, frames_ahead
from rmqctl.store.read.get import get_messages
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GOLDENS, GoldenStore
from tests.quick import goldens_of

# without queues nothing is read through them
WHOLE = [name for name in GOLDENS if not name.startswith("multi") and "cq-lost" not in name and name != "rocksdb"]


@pytest.mark.parametrize("name", goldens_of(WHOLE, "torn-zero"))
def test_damage_is_told_as_of_each_by_itself(
    golden_store: GoldenStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreFiles(golden_store(name)) as files:
        reader = StoreReader(files)
        views = [reader.view(queue) for queue in files.queues.all()]
        starts = [(view, offset) for view in views for offset in range(0, view.queue.max_offset, 29)]
        together = [get_messages(view, offset, frames=True) for view, offset in starts]
        monkeypatch.setattr(get, "frames_ahead", lambda log, places: itertools.repeat(None, len(places)))
        alone = [get_messages(view, offset, frames=True) for view, offset in starts]
        assert starts
        for one, other in zip(together, alone, strict=True):
            assert [(unit.queue_offset, str(unit.error)) for unit in one.damaged] == [
                (unit.queue_offset, str(unit.error)) for unit in other.damaged
            ]
            one.damaged = other.damaged = []
            assert one == other


def test_few_reads_give_many_frames(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreFiles(golden_store("clean")) as files:
        queue = max(files.queues.all(), key=lambda one: one.max_offset)
        places = [(unit.physical_offset, unit.size) for unit in queue.units(0, 32)]
        expected = [frame_at(files.log, *place) for place in places]
        counted = []
        read = files.descriptors.read

        def counting(*arguments: object) -> bytes:
            counted.append(arguments)
            return read(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(files.descriptors, "read", counting)
        assert list(frames_ahead(files.log, places)) == expected
        assert len(counted) <= 3
        # sizes that are not those of the frames, and places where none begins, are left to who looks at each
        first, size = places[0]
        wrong = [(first, size + 1), (first, size), (first + 1, size), (-1, 0), (1 << 60, 100), (first, 4)]
        assert [found is not None for found in frames_ahead(files.log, wrong)] == [False, True, *[False] * 4]
