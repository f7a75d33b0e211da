"""Starts of stores whose first log files were cleaned away: what led to their messages does not count."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.config.releases import RELEASES
from rmqctl.store.options import Events
from rmqctl.store.predict import Prediction, predict
from rmqctl.store.predict.prediction import Start
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore

FILE_SIZE = 262144


def _predicted(store: Path) -> Prediction:
    with StoreFiles(store) as files:
        return predict(files, "5.5.0")


def _served(store: Path) -> list[tuple[int, int]]:
    """The first queue offset and the end of each batch queue after a start."""
    with StoreFiles(store) as files:
        start = Start(files, RELEASES["5.5.0"], None, Events())
        assert start.run().loads
        queues = sorted(start.queues.by_key.items())
        return [(queue.min_offset, queue.max_offset) for _, queue in queues if queue.is_batch]


def test_batches_of_removed_messages_are_served_no_more(golden_store: GoldenStore) -> None:
    store = golden_store("innerbatch")
    assert _served(store) == [(0, 57), (0, 58)]
    # the file that was made ahead is all that is left
    (store / "commitlog" / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    (store / "commitlog" / f"{0:020d}").unlink()
    # a broker looks at the first file of a queue alone
    assert _served(store) == [(37, 57), (40, 58)]


def test_index_entries_of_removed_messages_are_not_lost(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    (store / "abort").write_text("1")
    (store / "checkpoint").write_bytes(bytes(4096))
    for file in sorted((store / "commitlog").iterdir())[:-2]:
        file.unlink()
    found = _predicted(store)
    assert found.index_files_deleted
    # all that is left is read, and gets its entries again
    assert found.start_offset == min(int(file.name) for file in (store / "commitlog").iterdir())
    assert found.index_entries_lost == 0
