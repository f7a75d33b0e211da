"""The mends of what follows the log: the timer, written from the messages that wait, and the epoch file.

The timer gets a log of one unit for each message that waits, and the wheel that leads there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.store.answers.config_offsets import CONSUMER_FILE, DELAY_FILE, OFFSET_TABLE, is_own_group, offset_key
from rmqctl.store.answers.delays import levels_delivered
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.config.config_files import backup_of, is_brokers_own, look_at_pair, read_config
from rmqctl.store.config.config_tables import TABLES, load_config_text, misnamed_topics
from rmqctl.store.config.epoch_file import ascending, epoch_bytes, read_epochs, readable_epochs
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.reading import exists
from rmqctl.store.journal.plan import MoveAway, Plan, Staging, install_config
from rmqctl.store.options import UNHEARD
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.recover.timer import WAITING, NewTimer, last_unit, plan_timer
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.pending import pending_messages
from rmqctl.store.timer.recovered import recover_timer, refuse_waiting_in_rocksdb
from rmqctl.store.timer.wheel import CHECKPOINT_FILE, log_file_size, roll_window_ms


def mend_timer(files: StoreFiles, plan: Plan, staging: Staging) -> None:
    """Plan a timer log and a wheel of what waits. CorruptError for a damaged timercheck; RefusedError for one
    without a time, and where the last message of the timer's queue cannot be found."""
    refuse_waiting_in_rocksdb(files)
    queue = files.queues.find(TIMER_TOPIC, 0)
    reader = StoreReader(files, UNHEARD)
    timer = recover_timer(reader, queue)
    pending = pending_messages(reader, queue, timer)
    read_time = timer.checkpoint.last_read_time_ms
    if read_time <= 0:
        raise RefusedError(
            "timercheck does not say which messages were delivered",
            file=files.layout.config / CHECKPOINT_FILE,
            hint="restore it from a copy of the store",
        )
    waiting = np.zeros(len(pending), WAITING)
    for name in ("out", "physical_offset", "size"):
        waiting[name] = pending.rows[name]
    hashes = np.array([java_hash(topic) for topic in pending.topics], np.int32)
    waiting["topic_hash"] = hashes[pending.rows["topic"]]
    size = log_file_size(files.layout, files.config)
    wanted = timer.checkpoint._replace(
        last_timer_queue_offset=timer.queue_end, master_timer_queue_offset=timer.queue_end
    )
    window = roll_window_ms(files.config, timer.precision)
    new = NewTimer(waiting, last_unit(queue), read_time, size, window, timer.precision)
    plan_timer(files.layout, plan, staging, new, wanted, pending.by_topic())


def mend_epochs(findings: list[Finding], plan: Plan, staging: Staging) -> None:
    """Plan an epoch file without what `findings` (RMQ-EPO-001, -002, -003) found in it."""
    path: Path | None = findings[0].file
    assert path is not None
    ends = [finding.expected for finding in findings if finding.code == "RMQ-EPO-001"]
    epochs = None
    for candidate in (path, backup_of(path)):
        try:
            epochs = epochs or read_epochs(candidate)
        except CorruptError:
            continue
    epochs = ascending(epochs or readable_epochs(path))
    kept = [epoch for epoch in epochs if all(isinstance(end, int) and epoch.start <= end for end in ends)]
    if kept:
        install_config(plan, staging, path, epoch_bytes(kept))
        return
    plan.add(MoveAway(path))
    if exists(backup_of(path)):
        # a broker would take its entries
        plan.add(MoveAway(backup_of(path)))


# Config files written again from what is known of them: what brokers load of an odd text, what a torn one still
# holds, topics by their queues, groups by their offsets. It only plans.

_NAMES = frozenset({"RMQ-CFG-025", "RMQ-CFG-026"})
_TOPIC_FILE, _GROUP_FILE = "topics.json", "subscriptionGroup.json"


def rewrite_config(files: StoreFiles, path: Path, codes: set[str], plan: Plan, staging: Staging) -> None:
    """Plan a whole config file in a broker's own form, for findings of these codes. RefusedError where nothing of it is
    known."""
    pair = look_at_pair(path)
    if pair.file.is_good:
        if codes & _NAMES:
            entries = pair.file.value[TABLES[path.name].name]
            for topic, _ in list(misnamed_topics(entries)):
                entries[topic]["topicName"] = topic
        install_config(plan, staging, path, format_config_json(pair.file.value).encode("utf-8"))
        return
    table = TABLES.get(path.name)
    content: dict[str, Any] = {}
    if table is not None:
        content[table.name] = {**_known_from_elsewhere(files, path.name), **pair.readable()}
    text = format_config_json(content).encode("utf-8")
    try:
        found = load_config_text(path.name, text).value
        # a store without a delayed message has no level
        is_of_use = table is not None and (bool(found[table.name]) or path.name == DELAY_FILE)
    except CorruptError:
        is_of_use = False
    if not is_of_use:
        raise RefusedError(
            "nothing of what it held can be read any more",
            file=path,
            hint="restore it from a copy, or set offsets with `rmqctl offsets set`",
        )
    install_config(plan, staging, path, text)


def _known_from_elsewhere(files: StoreFiles, name: str) -> dict[Any, Any]:
    if name == _TOPIC_FILE:
        return _topics(files)
    if name == DELAY_FILE:
        return {**levels_delivered(StoreReader(files))}
    return _groups(files) if name == _GROUP_FILE else {}


def _topics(files: StoreFiles) -> dict[str, Any]:
    """An entry for each topic that has queues, with as many as there are; a broker makes its own topics itself."""
    try:
        queues = files.queues.all()
    except CorruptError:
        return {}
    counts: dict[str, int] = {}
    for queue in queues:
        if is_safe_topic(queue.topic) and not is_brokers_own(queue.topic):
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    return {topic: _topic(topic, count) for topic, count in sorted(counts.items())}


def _topic(name: str, queues: int) -> dict[str, Any]:
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def _groups(files: StoreFiles) -> dict[str, Any]:
    """An entry for each group that has offsets; a broker fills in its defaults."""
    content = read_config(files.layout.config / CONSUMER_FILE)
    table = content.get(OFFSET_TABLE) if isinstance(content, dict) else None
    owners = (offset_key(key) for key in (table or {}))
    names = sorted({owner.group for owner in owners if owner is not None and not is_own_group(owner.group)})
    return {name: {"groupName": name} for name in names}
