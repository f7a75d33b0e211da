"""Files that a start removes and then makes anew are not told as gone."""

from __future__ import annotations

import shutil

from rmqctl.store.files.layout import file_name
from rmqctl.store.predict import predict
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore


def test_a_queue_file_of_no_bytes_that_is_made_again_is_not_gone(golden_store: GoldenStore) -> None:
    """5.x removes it when it loads, and puts into a new one what it dispatches."""
    store = golden_store("clean")
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    queue = store / "consumequeue/OrderTopic/0"
    shutil.rmtree(queue)
    queue.mkdir()
    (queue / file_name(0)).touch()
    with StoreFiles(store) as files:
        found = predict(files, "5.3.3")
    assert not [name for name in found.files_deleted if "OrderTopic/0" in name]
