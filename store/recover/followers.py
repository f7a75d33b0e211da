"""Plans what follows the end of the log. What is left past it makes a broker take new messages for old ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rmqctl.formats.checksums import java_hash, parse_int
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.formats.layouts import TIMER_CHECKPOINT
from rmqctl.store.config.config_files import backup_of, look_at, parse_config_file
from rmqctl.store.config.epoch_file import EPOCH_FILE, epoch_bytes, read_epochs
from rmqctl.store.files.reading import end_of_nonzero, exists, is_file
from rmqctl.store.journal.journal import PlannedChange
from rmqctl.store.journal.plan import ClearRange, MoveAway, Plan, Staging, WriteRange, install_config
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.wheel import (
    CHECKPOINT_FILE,
    KEPT,
    MAGIC_DELETE,
    METRICS_FILE,
    SLOT_SIZE,
    WHEEL_SIZE,
    TimerLogFile,
    TimerUnits,
    log_files,
    pieces,
    read_timer_checkpoint,
    slots_from,
    timer_precision,
    wheel_files,
)

# Plans that no epoch begins past the end of the log (EpochFileCache#truncateSuffixByOffset).


def plan_epochs_end(files: StoreFiles, plan: Plan, staging: Staging, log_end: int, *, is_cut: bool) -> None:
    """Plan the epoch file and its backup for a log that ends at `log_end`. Of a log that is cut (`is_cut`), the epoch
    that begins there goes too, as a broker has it. A file without an entry left goes: brokers never write such a one.
    """
    last_start = log_end - 1 if is_cut else log_end
    for path in (files.layout.root / EPOCH_FILE, backup_of(files.layout.root / EPOCH_FILE)):
        try:
            epochs = read_epochs(path)
        except CorruptError:  # a broker passes over it, and `check` names it
            continue
        kept = [epoch for epoch in epochs or [] if epoch.start <= last_start]
        if not epochs or kept == epochs:
            continue
        if kept:
            install_config(plan, staging, path, epoch_bytes(kept))
        else:
            plan.add(MoveAway(path))


# Plans that no offset of a group or of a delay level is past the end of its queue, after the log was cut.
#
# A group that is past the end of its queue is set to the end by a broker when it pulls. But messages that come before
# it does take the slots up to its offset, and the group never gets them.

QueueEnds = Mapping[tuple[str, int], int]
"""The end of each queue, by topic and queue id."""
_REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_"
_REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"


def plan_offsets_end(files: StoreFiles, plan: Plan, staging: Staging, ends: QueueEnds) -> None:
    """Plan the offsets in config/ for queues that end at `ends`. Those in queues that are not there stay, and so do
    files that cannot be read."""
    for name, change in _CHANGES.items():
        path = files.layout.config / name
        # a broker reads the backup where the file itself is missing or damaged
        for candidate in (path, backup_of(path)):
            try:
                loaded = parse_config_file(candidate)
            except CorruptError:
                continue
            content = loaded.content if loaded is not None else None
            if isinstance(content, dict) and change(content, ends):
                install_config(plan, staging, candidate, format_config_json(content).encode("utf-8"))


def _groups(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change consumerOffset.json; `pullOffsetTable` is what 5.5.0 keeps beside the committed offsets."""
    changed = False
    for table in ("offsetTable", "pullOffsetTable"):
        for key, offsets in _items(content, table):
            topic, _, group = str(key).partition("@")
            for queue_id in list(offsets) if isinstance(offsets, dict) else ():
                end = ends.get((topic, _as_number(queue_id)))
                if end is None:
                    continue
                # that of POP is the last record that is settled, not the next one to read (PopReviveService)
                is_settled = topic.startswith(_REVIVE_TOPIC) and group == _REVIVE_GROUP
                changed |= _lower(offsets, queue_id, end - 1 if is_settled else end)
    return changed


def _lower(offsets: dict[Any, Any], key: Any, limit: int) -> bool:
    """Set an offset to at most `limit`, without one if that is below 0; return whether it was larger."""
    offset = offsets[key]
    if not isinstance(offset, int) or isinstance(offset, bool) or offset <= limit:
        return False
    if limit < 0:
        del offsets[key]
    else:
        offsets[key] = limit
    return True


def _levels(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change delayOffset.json."""
    return _lower_each(content, "offsetTable", lambda level: ends.get((SCHEDULE_TOPIC, _as_number(level) - 1)))


def _light_queues(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change lmqConsumerOffset.json."""
    return _lower_each(content, "lmqOffsetTable", lambda key: ends.get((str(key).partition("@")[0], 0)))


def _lower_each(content: dict[Any, Any], name: str, end_of: Callable[[Any], int | None]) -> bool:
    table = content.get(name)
    changed = False
    for key in list(table) if isinstance(table, dict) else ():
        end = end_of(key)
        changed |= end is not None and _lower(content[name], key, end)
    return changed


def _ordered(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change consumerOrderInfo.json: a pop that took a message that is cut would hide another in its slot."""
    changed = False
    for key, by_queue in _items(content, "table"):
        topic = str(key).partition("@")[0]
        for queue_id in list(by_queue) if isinstance(by_queue, dict) else ():
            end = ends.get((topic, _as_number(queue_id)))
            if end is not None and _largest_taken(by_queue[queue_id]) >= end:
                del by_queue[queue_id]
                changed = True
    return changed


def _largest_taken(last_pop: Any) -> int:
    offsets = last_pop.get("o") if isinstance(last_pop, dict) else None
    if not isinstance(offsets, list) or not offsets or not all(isinstance(one, int) for one in offsets):
        return -1
    first, *distances = offsets
    return int(first + max(distances, default=0))


def _items(content: dict[Any, Any], name: str) -> list[tuple[Any, Any]]:
    table = content.get(name)
    return list(table.items()) if isinstance(table, dict) else []


def _as_number(key: Any) -> int:
    """Return the number of a queue or a level; -1 for a key that is no number."""
    number = parse_int(str(key))
    return -1 if number is None else number


_CHANGES: dict[str, Callable[[dict[Any, Any], QueueEnds], bool]] = {
    "consumerOffset.json": _groups,
    "delayOffset.json": _levels,
    "lmqConsumerOffset.json": _light_queues,
    "consumerOrderInfo.json": _ordered,
}


# Plans that the timer ends where the log ends: units of messages that are cut leave the timer log and the wheel.


def plan_timer_end(files: StoreFiles, plan: Plan, staging: Staging, log_end: int, queue_end: int) -> None:
    """Plan the timer's files for a commitlog that ends at `log_end`, and a queue of the timer that ends at `queue_end`.

    From the first unit that leads to `log_end` or past it nothing is left in the timer log, and no slot of the wheel
    leads there; timermetrics counts none of these. The checkpoint says no more than that the timer has all messages of
    its queue. Damaged files stay: a broker does not get past them, and `check` names them.
    """
    try:
        logs = log_files(files.layout)
        checkpoint = read_timer_checkpoint(files.layout.config)
    except CorruptError:
        return
    precision = timer_precision(files.layout, files.config, files.descriptors)
    units = _units(files, logs, precision)
    past = np.flatnonzero(units["physical_offset"] >= log_end)
    next_offset = queue_end
    flushed = checkpoint.last_timer_log_flush_pos
    if len(past):
        position = int(units["position"][past[0]])
        before, going = units[: past[0]], units[past[0] :]
        next_offset = min(queue_end, _first_left_out(files, before, going, log_end, queue_end))
        _end_log(files, plan, logs, position)
        _end_wheels(files, plan, _Going(before, going, position, precision))
        _end_counts(files, plan, staging, going[going["out"] >= checkpoint.last_read_time_ms])
        flushed = min(flushed, position)
    wanted = checkpoint._replace(
        last_timer_log_flush_pos=flushed,
        last_timer_queue_offset=min(checkpoint.last_timer_queue_offset, next_offset),
        master_timer_queue_offset=min(checkpoint.master_timer_queue_offset, next_offset),
    )
    path = files.layout.config / CHECKPOINT_FILE
    if wanted != checkpoint and exists(path):
        plan.add(WriteRange(path, 0, TIMER_CHECKPOINT.struct.pack(*wanted)))


def _units(files: StoreFiles, logs: list[TimerLogFile], precision: int) -> TimerUnits:
    found = [piece.units for piece in pieces(logs, files.descriptors, precision)]
    return np.concatenate(found) if found else np.empty(0, KEPT)


def _first_left_out(files: StoreFiles, before: TimerUnits, past: TimerUnits, log_end: int, queue_end: int) -> int:
    """Return the offset of the first message in the timer's queue whose only unit goes although the message stays,
    `queue_end` without one. A broker that crashed has put messages into its log again, in front of newer ones."""
    kept, going = before["physical_offset"], past["physical_offset"]
    left_out = np.setdiff1d(going[going < log_end], kept)
    queue = files.queues.find(TIMER_TOPIC, 0) if len(left_out) else None
    if queue is None:
        return queue_end
    wanted = set(left_out.tolist())
    found = (unit.queue_offset for unit in queue.units(0, queue_end) if unit.physical_offset in wanted)
    return next(found, queue_end)


def _end_log(files: StoreFiles, plan: Plan, logs: list[TimerLogFile], position: int) -> None:
    for file in logs:
        if file.begin >= position and file is not logs[0]:
            plan.add(MoveAway(file.path))
        elif file.end > position:
            begin = max(0, position - file.begin)
            stop = end_of_nonzero(files.descriptors, file.path, begin, file.size)
            if stop > begin:
                plan.add(ClearRange(file.path, begin, stop - begin))


class _Going(NamedTuple):
    """Units that stay and those that go, which begin at `position` of the timer log; `precision` (ms) of the wheel."""

    before: TimerUnits
    going: TimerUnits
    position: int
    precision: int


def _end_wheels(files: StoreFiles, plan: Plan, units: _Going) -> None:
    last_of = dict(zip(units.before["out"].tolist(), units.before["position"].tolist(), strict=True))
    takes_back = (units.going["magic"] & MAGIC_DELETE) != 0
    counted: Counter[int] = Counter()
    for out, number in zip(units.going["out"].tolist(), np.where(takes_back, -1, 1).tolist(), strict=True):
        counted[out] += number
    for wheel in wheel_files(files.layout):
        if not is_file(wheel.path) or wheel.path.stat().st_size != WHEEL_SIZE:
            continue
        for slot in slots_from(wheel.path, files.descriptors, units.position, units.precision):
            last = last_of.get(slot.time)
            place = slot.number * SLOT_SIZE
            if last is None:
                plan.add(ClearRange(wheel.path, place, SLOT_SIZE))
                continue
            num = max(0, slot.num - counted[slot.time])
            shorter = slot._replace(first=min(slot.first, last), last=last, num=num)
            plan.add(WriteRange(wheel.path, place, shorter.packed(units.precision)))


def _end_counts(files: StoreFiles, plan: Plan, staging: Staging, units: TimerUnits) -> None:
    """Plan that timermetrics no longer counts `units`, which wait: a recall has taken one off (TimerMessageStore
    #doEnqueue)."""
    path = files.layout.config / METRICS_FILE
    content = look_at(path).value
    counts = content.get("timingCount") if isinstance(content, dict) else None
    if not isinstance(counts, dict):
        return
    fewer = Counter(units["topic_hash"].tolist())
    # a recall took one off, and is itself among the units
    fewer.subtract(2 * units["topic_hash"][(units["magic"] & MAGIC_DELETE) != 0].tolist())
    changed = False
    for topic, metric in counts.items():
        count = metric.get("count") if isinstance(metric, dict) else None
        if isinstance(count, int) and fewer[java_hash(topic)]:
            # one that is too small already, as after a crash, does not fall below 0
            metric["count"], changed = max(min(count, 0), count - fewer[java_hash(topic)]), True
    if changed:
        install_config(plan, staging, path, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def plan_followers(
    change: PlannedChange, plan: Plan, log_end: int, ends: QueueEnds, *, is_cut: bool, crashed: bool
) -> None:
    """Plan that timer, epochs and offsets fit a commitlog that ends at `log_end` and queues that end at `ends`.

    `is_cut`: something of the log goes. Offsets only follow a cut, or a crash (`crashed`), which may have lost the last
    messages: what else is past an end was set by a person.
    """
    with _passing_over_unreadable(is_cut=is_cut):
        plan_timer_end(change.files, plan, change.staging, log_end, ends.get((TIMER_TOPIC, 0), 0))
    with _passing_over_unreadable(is_cut=is_cut):
        plan_epochs_end(change.files, plan, change.staging, log_end, is_cut=is_cut)
    if is_cut or crashed:
        plan_offsets_end(change.files, plan, change.staging, ends)


@contextmanager
def _passing_over_unreadable(*, is_cut: bool) -> Iterator[None]:
    """Leave files that are not regular, which no broker reads either; where nothing is cut (`is_cut`) also those that
    this user cannot read. `check` reports both.

    Raises: UnreadableError for a file that may lead past the new end.
    """
    try:
        yield
    except UnreadableError as error:
        if error.file is None or (is_cut and is_file(error.file)):
            raise
