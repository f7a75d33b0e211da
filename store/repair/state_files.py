"""The mends of what follows the log: the timer, written from the messages that wait, and the epoch file.

The timer gets a log of one unit for each message that waits, and no wheel: a broker makes the wheel of the log when it
starts. The last unit says where a broker goes on in the timer's queue, so it is that of the queue's last message.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.formats.layouts import BLANK_MAGIC, TIMER_CHECKPOINT, TIMER_CHECKPOINT_SIZE, TIMER_LOG_UNIT
from rmqctl.store.answers.config_offsets import CONSUMER_FILE, OFFSET_TABLE, is_own_group, offset_key
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.config.config_files import backup_of, is_brokers_own, look_at_pair, read_config
from rmqctl.store.config.config_tables import TABLES, load_config_text
from rmqctl.store.config.epoch_file import ascending, epoch_bytes, read_epochs, readable_epochs
from rmqctl.store.files.layout import file_name, is_file_name, is_safe_topic
from rmqctl.store.files.reading import end_of_nonzero, exists, is_directory
from rmqctl.store.journal.plan import ClearRange, CreateFile, MoveAway, Plan, Staging, WriteRange, install_config
from rmqctl.store.options import UNHEARD
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.recovered import WHEEL_MS, RecoveredTimer, pending_messages, recover_timer
from rmqctl.store.timer.wheel import CHECKPOINT_FILE, LOG_FOLDER, MAGIC_DEFAULT, MAGIC_ROLL, PRECISION_MS, wheel_files

# mappedFileSizeTimerLog
_DEFAULT_FILE_SIZE = 104_857_600
# what TimerLog leaves free at the end of a file
_BLANK_SIZE = 16
# the wheel has slots for twice as long
_LARGEST_DELAY_MS = 2 * WHEEL_MS


class _Waiting(NamedTuple):
    """A message that waits, with the time (ms) when it is due and the hash of its topic."""

    out: int
    physical_offset: int
    size: int
    topic_hash: int


def mend_timer(files: StoreFiles, plan: Plan) -> None:
    """Plan a timer log of what waits, without a wheel. CorruptError for a damaged timercheck; RefusedError for one
    without a time, and where the last message of the timer's queue cannot be found."""
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
    # what is due already gets the next second that a broker looks at
    waiting = [
        _Waiting(max(one.out, read_time), one.physical_offset, one.size, java_hash(one.topic))
        for one in pending.messages
    ]
    last = None if queue is None else queue.unit(timer.queue_end - 1)
    if timer.queue_end > timer.queue_begin:
        if last is None or not last.is_written:
            raise RefusedError(
                f"unit {timer.queue_end - 1} of {TIMER_TOPIC} leads to no message",
                hint=f"run `rmqctl rebuild --queues -t {TIMER_TOPIC}` first",
            )
        if not waiting or waiting[-1].physical_offset != last.physical_offset:
            # a slot that no broker looks at any more
            waiting.append(_Waiting(read_time - PRECISION_MS, last.physical_offset, last.size, 0))
    _plan_log(files, plan, waiting, read_time)
    for wheel in wheel_files(files.layout):
        plan.add(MoveAway(wheel.path))
    _plan_checkpoint(files, plan, timer)


def _plan_log(files: StoreFiles, plan: Plan, waiting: list[_Waiting], now: int) -> None:
    folder = files.layout.root / LOG_FOLDER
    present = {
        int(path.name): path for path in (folder.iterdir() if is_directory(folder) else ()) if is_file_name(path.name)
    }
    size = max((path.stat().st_size for path in present.values()), default=0) or _DEFAULT_FILE_SIZE
    wanted = dict(_packed(waiting, now, size)) if waiting else {}
    for begin, path in sorted(present.items()):
        stop = end_of_nonzero(files.descriptors, path, 0, path.stat().st_size)
        if path.stat().st_size != size or begin not in wanted:
            plan.add(MoveAway(path))
        elif stop:
            plan.add(ClearRange(path, 0, stop))
    for begin, data in wanted.items():
        path = folder / file_name(begin)
        if begin not in present or present[begin].stat().st_size != size:
            plan.add(CreateFile(path, size))
        plan.add(WriteRange(path, 0, data))


def _packed(waiting: list[_Waiting], now: int, size: int) -> Iterable[tuple[int, bytes]]:
    """Yield the bytes of each file, with the position of its first one."""
    step, begin, data = TIMER_LOG_UNIT.size, 0, bytearray()
    slots: dict[int, int] = {}
    for one in waiting:
        if len(data) + step + _BLANK_SIZE > size:
            data += (size - len(data)).to_bytes(4, "big") + bytes(8) + BLANK_MAGIC.to_bytes(4, "big")
            yield begin, bytes(data)
            begin, data = begin + size, bytearray()
        place = begin + len(data)
        # what is due later is put on the wheel once more then
        slot, is_rolled = min(one.out, now + _LARGEST_DELAY_MS), one.out > now + _LARGEST_DELAY_MS
        magic = MAGIC_DEFAULT | MAGIC_ROLL if is_rolled else MAGIC_DEFAULT
        data += TIMER_LOG_UNIT.struct.pack(step, slots.get(slot, -1), magic, now, slot - now, *one[1:], 0)
        slots[slot] = place
    yield begin, bytes(data)


def _plan_checkpoint(files: StoreFiles, plan: Plan, timer: RecoveredTimer) -> None:
    path = files.layout.config / CHECKPOINT_FILE
    # from position 0 a broker links all units again
    wanted = timer.checkpoint._replace(
        last_timer_log_flush_pos=0,
        last_timer_queue_offset=timer.queue_end,
        master_timer_queue_offset=timer.queue_end,
    )
    if not exists(path):
        plan.add(CreateFile(path, TIMER_CHECKPOINT_SIZE))
    plan.add(WriteRange(path, 0, TIMER_CHECKPOINT.struct.pack(*wanted)))


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

_TOPIC_FILE, _GROUP_FILE = "topics.json", "subscriptionGroup.json"


def rewrite_config(files: StoreFiles, finding: Finding, plan: Plan, staging: Staging) -> None:
    """Plan a whole config file in a broker's own form. RefusedError where nothing of it is known."""
    path = finding.file
    assert path is not None
    pair = look_at_pair(path)
    if pair.file.is_good:
        install_config(plan, staging, path, format_config_json(pair.file.value).encode("utf-8"))
        return
    table = TABLES.get(path.name)
    content: dict[str, Any] = {}
    if table is not None:
        entries = max((one.table() for one in pair), key=len)
        content[table.name] = {**_known_from_elsewhere(files, path.name), **entries}
    text = format_config_json(content).encode("utf-8")
    try:
        is_of_use = table is not None and bool(load_config_text(path.name, text).value[table.name])
    except CorruptError:
        is_of_use = False
    if not is_of_use:
        raise RefusedError(
            "nothing of what it held can be read any more",
            file=path,
            hint="restore it from a copy, or set offsets with `rmqctl offsets set`",
        )
    install_config(plan, staging, path, text)


def _known_from_elsewhere(files: StoreFiles, name: str) -> dict[str, Any]:
    if name == _TOPIC_FILE:
        return _topics(files)
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
