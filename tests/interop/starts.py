"""A start of a real broker, held against what `predict` said of it."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import RELEASES
from rmqctl.store.options import Events
from rmqctl.store.predict import Prediction
from rmqctl.store.predict.prediction import Start
from rmqctl.store.store_files import StoreFiles
from tests.interop.harness import BrokerView


def simulated(store: Path, config: StoreConfig, version: str) -> tuple[Start, Prediction]:
    """The start of a broker of this version in memory: its queues then, and what is said of it."""
    with StoreFiles(store, config) as files:
        start = Start(files, RELEASES[version], None, Events())
        return start, start.run()


def waits_for_ever(found: Prediction) -> bool:
    """Whether 4.9.8 would come to no end of its start, nor the process that it is in."""
    return "Try to finish doing reput" in str(found.error)


def differences(start: Start, found: Prediction, view: BrokerView) -> list[str]:
    """What came otherwise than predicted."""
    if not found.loads or not view.load_ok:
        return [] if found.loads == bool(view.load_ok) else [f"loads: {found.loads}, really {view.load_ok}"]
    wrong = []
    if found.end_offset != view.max_offset:
        wrong.append(f"end: {found.end_offset}, really {view.max_offset}")
    # a RocksDB that is opened begins new files, and removes those that they follow
    kept = ("abort", "abort.bak", "rocksdbstore/")
    gone = {name for name in view.files_before if name not in view.files_after and not name.startswith(kept)}
    if set(found.files_deleted) | set(found.index_files_deleted) != gone:
        wrong.append(f"deleted: {sorted(gone ^ {*found.files_deleted, *found.index_files_deleted})[:4]}")
    if view.exception is not None:
        return [*wrong, view.exception]
    served = {(queue.topic, queue.queue_id): queue for queue in view.queues if queue.max_offset}
    expected = {key[:2]: queue for key, queue in start.queues.by_key.items() if queue.max_offset}
    if served.keys() != expected.keys():
        wrong.append(f"queues: {sorted(served.keys() ^ expected.keys())[:4]}")
    for key in sorted(served.keys() & expected.keys()):
        queue, real = expected[key], served[key]
        if (queue.min_offset, queue.max_offset) != (real.min_offset, real.max_offset):
            wrong.append(f"{key}: {queue.min_offset}..{queue.max_offset}, really {real.min_offset}..{real.max_offset}")
        offsets = [unit[1] for unit in real.units]
        if queue.all_offsets().tolist()[len(queue.all_offsets()) - len(offsets) :] != offsets:
            wrong.append(f"{key}: other units")
    return wrong
