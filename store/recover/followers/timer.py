"""Plans that the timer ends where the log ends: units of messages that are cut leave the timer log and the wheel."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rmqctl.formats.errors import CorruptError
from rmqctl.formats.layouts import TIMER_CHECKPOINT
from rmqctl.store.files.presence import exists, is_file
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.journal.plan import ClearRange, MoveAway, Plan, WriteRange
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.timer.timer_log import KEPT, MAGIC_DELETE, TimerLogFile, TimerUnits, log_files, pieces
from rmqctl.store.timer.timer_state import CHECKPOINT_FILE, read_timer_checkpoint
from rmqctl.store.timer.wheel import SLOT_SIZE, WHEEL_SIZE, slots_from, wheel_files


def plan_timer_end(files: StoreFiles, plan: Plan, log_end: int, queue_end: int) -> None:
    """Plan the timer's files for a commitlog that ends at `log_end`, and a queue of the timer that ends at `queue_end`.

    From the first unit that leads to `log_end` or past it nothing is left in the timer log, and no slot of the wheel
    leads there. The checkpoint says no more than that the timer has all messages of its queue. Damaged files stay: a
    broker does not get past them, and `check` names them.
    """
    try:
        logs = log_files(files.layout)
        checkpoint = read_timer_checkpoint(files.layout.config)
    except CorruptError:
        return
    units = _units(files, logs)
    past = np.flatnonzero(units["physical_offset"] >= log_end)
    next_offset = queue_end
    flushed = checkpoint.last_timer_log_flush_pos
    if len(past):
        position = int(units["position"][past[0]])
        next_offset = min(queue_end, _first_left_out(files, units, int(past[0]), log_end, queue_end))
        _end_log(files, plan, logs, position)
        _end_wheels(files, plan, units, position)
        flushed = min(flushed, position)
    wanted = checkpoint._replace(
        last_timer_log_flush_pos=flushed,
        last_timer_queue_offset=min(checkpoint.last_timer_queue_offset, next_offset),
        master_timer_queue_offset=min(checkpoint.master_timer_queue_offset, next_offset),
    )
    path = files.layout.config / CHECKPOINT_FILE
    if wanted != checkpoint and exists(path):
        plan.add(WriteRange(path, 0, TIMER_CHECKPOINT.struct.pack(*wanted)))


def _units(files: StoreFiles, logs: list[TimerLogFile]) -> TimerUnits:
    found = [piece.units for piece in pieces(logs, files.descriptors)]
    return np.concatenate(found) if found else np.empty(0, KEPT)


def _first_left_out(files: StoreFiles, units: TimerUnits, first_past: int, log_end: int, queue_end: int) -> int:
    """Return the offset of the first message in the timer's queue whose only unit goes although the message stays,
    `queue_end` without one. A broker that crashed has put messages into its log again, in front of newer ones."""
    kept, going = units[:first_past]["physical_offset"], units[first_past:]["physical_offset"]
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


def _end_wheels(files: StoreFiles, plan: Plan, units: TimerUnits, position: int) -> None:
    before = units[units["position"] < position]
    going = units[units["position"] >= position]
    last_of = dict(zip(before["out"].tolist(), before["position"].tolist(), strict=True))
    takes_back = (going["magic"] & MAGIC_DELETE) != 0
    counted: Counter[int] = Counter()
    for out, number in zip(going["out"].tolist(), np.where(takes_back, -1, 1).tolist(), strict=True):
        counted[out] += number
    for wheel in wheel_files(files.layout):
        if not is_file(wheel.path) or wheel.path.stat().st_size != WHEEL_SIZE:
            continue
        for slot in slots_from(wheel.path, files.descriptors, position):
            last = last_of.get(slot.time)
            place = slot.number * SLOT_SIZE
            if last is None:
                plan.add(ClearRange(wheel.path, place, SLOT_SIZE))
                continue
            num = max(0, slot.num - counted[slot.time])
            plan.add(
                WriteRange(wheel.path, place, slot._replace(first=min(slot.first, last), last=last, num=num).packed())
            )
