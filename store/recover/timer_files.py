"""The timer's files as a broker writes them: the timer log and the wheel of the messages that wait, the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import (
    BLANK_MAGIC,
    TIMER_CHECKPOINT,
    TIMER_CHECKPOINT_SIZE,
    TIMER_LOG_UNIT,
    TIMER_WHEEL_SLOT,
    TIMER_WHEEL_SLOTS,
)
from rmqctl.store.files import io
from rmqctl.store.files.layout import StoreLayout, file_name
from rmqctl.store.files.reading import exists
from rmqctl.store.journal.plan import Install, MoveAway, Plan, Staging, install_config
from rmqctl.store.queues.consumequeue import QueueUnit
from rmqctl.store.queues.dispatch import TIMER_TOPIC
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.timer.wheel import (
    CHECKPOINT_FILE,
    LOG_FOLDER,
    MAGIC_DEFAULT,
    MAGIC_ROLL,
    METRICS_FILE,
    PRECISION_MS,
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_FILE,
    WHEEL_SIZE,
    TimerCheckpoint,
    wheel_files,
)

# what TimerLog leaves free at the end of a file
_BLANK_SIZE = 16
# timerRollWindowSlot: a broker stores a message that waits for longer once more when these seconds are over
_ROLL_WINDOW_MS = 172_800 * PRECISION_MS

WAITING = np.dtype([("out", np.int64), ("physical_offset", np.int64), ("size", np.int32), ("topic_hash", np.int32)])
"""A message that waits: when it is due (ms), its place in the commitlog, String.hashCode of its topic."""

WaitingRows = np.ndarray[Any, np.dtype[np.void]]
Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
_SLOTS_AT_ONCE = 4096
_UNIT = TIMER_LOG_UNIT.dtype()
_SLOT = TIMER_WHEEL_SLOT.dtype()


def last_unit(queue: AnyConsumeQueue | None) -> QueueUnit | None:
    """Return the last unit of the timer's queue, None for an empty queue. RefusedError where it leads to no message: a
    broker goes on in the queue after the message of the timer log's last unit."""
    if queue is None or queue.max_offset <= 0:
        return None
    last = queue.unit(queue.max_offset - 1)
    if last is None or not last.is_written:
        raise RefusedError(
            f"unit {queue.max_offset - 1} of {TIMER_TOPIC} leads to no message",
            hint=f"run `rmqctl rebuild --queues -t {TIMER_TOPIC}` first",
        )
    return last


class NewTimer:
    """The timer log and the wheel for `waiting` messages, in the order of their queue, of a timer that has come to
    `read_time` (ms). What is due before gets the next second that a broker looks at, what is due after the roll window
    the unit of a message that is to be stored once more.

    The last unit leads to `last`, where a broker goes on in the queue; if that does not wait, in a second that no
    broker looks at.
    """

    def __init__(self, waiting: WaitingRows, last: QueueUnit | None, read_time: int, file_size: int) -> None:
        read_time = -(-read_time // PRECISION_MS) * PRECISION_MS
        rows = waiting.copy()
        rows["out"] = np.maximum(rows["out"], read_time)
        if last is not None and (not len(rows) or int(rows["physical_offset"][-1]) != last.physical_offset):
            ending = np.array([(read_time - PRECISION_MS, last.physical_offset, last.size, 0)], WAITING)
            rows = np.concatenate([rows, ending])
        self.file_size = file_size
        per_file = max((file_size - _BLANK_SIZE) // UNIT_SIZE, 1)
        number = np.arange(len(rows), dtype=np.int64)
        self._positions = number // per_file * file_size + number % per_file * UNIT_SIZE
        self._per_file = per_file
        self._units = _units(rows, self._positions, read_time)

    @property
    def log_end(self) -> int:
        """Position after the last unit."""
        return int(self._positions[-1]) + UNIT_SIZE if len(self._positions) else 0

    def log_pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of each file of the log, with the position of its first one."""
        for number in range(0, len(self._units), self._per_file):
            data = self._units[number : number + self._per_file].tobytes()
            if number + self._per_file < len(self._units):
                data += (self.file_size - len(data)).to_bytes(4, "big") + bytes(8) + BLANK_MAGIC.to_bytes(4, "big")
            yield number // self._per_file * self.file_size, data

    def write_log(self, folder: Path) -> None:
        """Write the files of the log into `folder`, which must not be there."""
        for begin, data in self.log_pieces():
            io.make_directories(folder)
            path = folder / file_name(begin)
            io.create_file(path, self.file_size)
            io.write_range(path, 0, data)

    def write_wheel(self, path: Path) -> None:
        """Write the wheel that leads to the units; it has holes where no message waits."""
        slots = np.zeros(TIMER_WHEEL_SLOTS, _SLOT)
        is_live = self._units["delay"] >= 0
        times = (self._units["write_time"] + self._units["delay"])[is_live] // PRECISION_MS
        positions = self._positions[is_live]
        seconds, first, counts = np.unique(times, return_index=True, return_counts=True)
        index = seconds % TIMER_WHEEL_SLOTS
        slots["time"][index], slots["first_pos"][index], slots["num"][index] = seconds, positions[first], counts
        # of units with the same second the last one stays
        slots["last_pos"][times % TIMER_WHEEL_SLOTS] = positions
        io.make_directories(path.parent)
        io.create_file(path, WHEEL_SIZE)
        for begin in range(0, TIMER_WHEEL_SLOTS, _SLOTS_AT_ONCE):
            piece = slots[begin : begin + _SLOTS_AT_ONCE]
            if piece["time"].any():
                io.write_range(path, begin * SLOT_SIZE, piece.tobytes())


def _units(rows: WaitingRows, positions: Positions, read_time: int) -> WaitingRows:
    late = rows["out"] - read_time
    is_rolled = late >= _ROLL_WINDOW_MS
    window = np.where(late - _ROLL_WINDOW_MS < _ROLL_WINDOW_MS // 3, _ROLL_WINDOW_MS // 2, _ROLL_WINDOW_MS)
    delay = np.where(is_rolled, window, late)
    delay -= delay % PRECISION_MS
    units = np.zeros(len(rows), _UNIT)
    units["size"], units["write_time"], units["delay"] = UNIT_SIZE, read_time, delay
    units["magic"] = np.where(is_rolled, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT)
    units["physical_offset"], units["message_size"] = rows["physical_offset"], rows["size"]
    units["topic_hash"], units["previous_pos"] = rows["topic_hash"], -1
    order = np.argsort(delay, kind="stable")
    follows = np.flatnonzero(np.diff(delay[order]) == 0)
    units["previous_pos"][order[follows + 1]] = positions[order[follows]]
    return units


def plan_timer(
    layout: StoreLayout,
    plan: Plan,
    staging: Staging,
    new: NewTimer,
    checkpoint: TimerCheckpoint,
    counts: Mapping[str, int],
) -> None:
    """Plan that log, wheel and checkpoint become those of the `new` timer, whose queue is read up to where `checkpoint`
    says, and timermetrics the `counts` by topic. Snapshots of the wheel go: a broker with timerWheelSnapshotFlush would
    prefer them."""
    log, wheel = layout.root / LOG_FOLDER, layout.root / WHEEL_FILE
    staged_log, staged_wheel = log, wheel
    if staging is not None:
        staged_log, staged_wheel = staging() / LOG_FOLDER, staging() / WHEEL_FILE
        new.write_log(staged_log)
        new.write_wheel(staged_wheel)
    if new.log_end:
        plan.add(Install(staged_log, log, (new.log_end // new.file_size + 1) * new.file_size))
    elif exists(log):
        plan.add(MoveAway(log))
    plan.add(Install(staged_wheel, wheel, WHEEL_SIZE))
    for one in wheel_files(layout):
        if one.path != wheel:
            plan.add(MoveAway(one.path))
    wanted = checkpoint._replace(last_timer_log_flush_pos=new.log_end)
    data = TIMER_CHECKPOINT.struct.pack(*wanted).ljust(TIMER_CHECKPOINT_SIZE, b"\0")
    install_config(plan, staging, layout.config / CHECKPOINT_FILE, data)
    now = checkpoint.last_read_time_ms
    metrics = {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": now},
        "timingCount": {topic: {"count": count, "timeStamp": now} for topic, count in sorted(counts.items())},
    }
    text = json.dumps(metrics, ensure_ascii=False, separators=(",", ":"))
    install_config(plan, staging, layout.config / METRICS_FILE, text.encode("utf-8"))
