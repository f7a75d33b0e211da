"""What a start of 5.5.0 makes of queues in files and in a RocksDB: rocksdbCQDoubleWriteEnable.

With anything but light queues in the RocksDB a broker does not come up, and then files alone can assign offsets. So the
RocksDB follows the files, recovery goes back to where it ends, and what is left to say is which of both is read
(CombineConsumeQueueStore).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rmqctl.formats.errors import CorruptError, counted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.releases import Release
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.predict.broker_log import RecoveryStart
from rmqctl.store.predict.broker_queues import SimulatedQueue
from rmqctl.store.predict.rules import has_queues_in_rocksdb, not_predicted
from rmqctl.store.queues.dispatch import LMQ_PREFIX
from rmqctl.store.queues.queue_table import rocksdb_folder
from rmqctl.store.queues.rocksdb_queues import StoredQueues, stored_queues

_FILES, _ROCKSDB = "default", "defaultrocksdb"
_NOT_READABLE = "CombineConsumeQueueStore currentReadStore not satisfied readable conditions"


def writes_both(layout: StoreLayout, config: StoreConfig, release: Release) -> bool:
    """Return whether a broker has both kinds of queues."""
    is_set = release.combines_queues and config.rocksdb_cq_double_write_enable
    return is_set and not has_queues_in_rocksdb(layout, config, release)


def refused_combination(layout: StoreLayout, config: StoreConfig, release: Release) -> str | None:
    """Return why a broker makes no store of such settings, in its own words; None where it makes one."""
    if not writes_both(layout, config, release):
        return None
    loaded = {one.strip().lower() for one in config.combine_cq_loading_cq_types.split(";")} & {_FILES, _ROCKSDB}
    assigning, is_light = config.combine_assign_offset_cq_type.lower(), config.combine_cq_use_rocksdb_for_lmq
    if not loaded:
        return "CombineConsumeQueueStore loadingCQTypes is empty"
    if assigning not in loaded:
        return "CombineConsumeQueue chooseAssignOffsetStore fail"
    if config.combine_cq_prefer_cq_type.lower() not in loaded:
        return "CombineConsumeQueue choosePreferCQ fail"
    if is_light and _ROCKSDB not in loaded:
        return "CombineConsumeQueueStore rocksdbCQ is not ready for LMQ"
    return "CombineConsumeQueueStore maybe incorrect config" if is_light and assigning != _FILES else None


def refused_light_queues(layout: StoreLayout, config: StoreConfig, release: Release) -> str | None:
    """Return why a broker does not come up because it has both kinds of queues, and light queues in files
    (RocksDBLiteLifecycleManager#init)."""
    is_refused = writes_both(layout, config, release) and not config.combine_cq_use_rocksdb_for_lmq
    return "unexpected, rocksdbCQ is not ready for LMQ." if is_refused else None


class BesideQueues(NamedTuple):
    """What follows from the RocksDB. `begun`: queues, light ones apart, that begin again in it, where the files end,
    and `stopping`: those of them that had units; `lacking`: messages in files of queues that it has no unit of."""

    begun: int = 0
    stopping: int = 0
    lacking: int = 0


def queues_beside(layout: StoreLayout, config: StoreConfig, release: Release) -> StoredQueues | None:
    """Return those that a broker has beside its files; None where it has none. UnsupportedError for damaged ones."""
    if not (writes_both(layout, config, release) and config.combine_cq_use_rocksdb_for_lmq):
        return None
    try:
        return stored_queues(rocksdb_folder(layout))
    except CorruptError as error:
        raise not_predicted("rocksdbCQDoubleWriteEnable", f"the RocksDB is damaged: {error}") from error


def _beside_after(stored: StoredQueues, queues: Iterable[SimulatedQueue], start: RecoveryStart) -> BesideQueues:
    """Return what becomes of them, once recovery has dispatched to the `queues` in files (#verifyAndInitOffset-
    ForAllStore)."""
    begin = start.log.files[start.file].start_offset + start.position if start.log.files else 0
    if start.queues_end is not None:
        begin = max(begin, start.dispatched_to(start.queues_end) + 1)
    begun = stopping = lacking = 0
    for queue in queues:
        known, end = stored.ends.get((queue.topic, queue.queue_id), 0), queue.max_offset
        if queue.is_batch or queue.topic.startswith(LMQ_PREFIX) or (known <= 0 and end <= 0):
            continue
        first = _first_from(queue, begin)
        if first >= end != known:
            begun, stopping, first = begun + 1, stopping + (known > 0), end
        elif known > 0 and stored.database is not None:
            key = queue.topic, queue.queue_id
            first = max(stored.database.begun_at(*key), stored.database.first_slot(*key) or 0)
        lacking += max(0, first - queue.min_offset)
    return BesideQueues(begun, stopping, lacking)


class BesideOutcome(NamedTuple):
    """What a start makes of the RocksDB. `unread`: messages that no consumer gets; `error`: why it does not come up."""

    warnings: tuple[str, ...] = ()
    unread: int = 0
    error: str | None = None


def outcome_beside(config: StoreConfig, start: RecoveryStart, queues: Iterable[SimulatedQueue]) -> BesideOutcome:
    """Return what a start makes of the RocksDB beside the `queues` in files; nothing without one."""
    if start.beside is None:
        return BesideOutcome()
    found = _beside_after(start.beside, queues, start)
    if config.combine_cq_prefer_cq_type.lower() == _FILES:
        if not found.begun:
            return BesideOutcome()
        said = counted(found.begun, "queue of the RocksDB begins", "queues of the RocksDB begin")
        warning = f"{said} where the files end: the database lacks their messages before"
        return BesideOutcome((warning,))
    if found.stopping:
        return BesideOutcome(error=_NOT_READABLE)
    if not found.lacking:
        return BesideOutcome()
    said = counted(found.lacking, "message is", "messages are")
    warning = f"with combineCQPreferCQType=defaultRocksDB {said} not read: files alone lead there"
    return BesideOutcome((warning,), found.lacking)


def _first_from(queue: SimulatedQueue, begin: int) -> int:
    """Return the queue offset of the first message at a physical offset or after it; the end without one."""
    first = queue.max_offset
    for number in range(len(queue.files) - 1, -1, -1):
        start = queue.files[number][0]
        places = queue.units_of(number)["physical_offset"][: max(0, queue.max_offset - start)]
        at = int(np.searchsorted(places, begin))
        first = min(first, start + at)
        if at:
            break
    return first
