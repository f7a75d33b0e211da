"""How far a micro-batch goes in each of several logs, so that what limits it is shared fairly."""

from __future__ import annotations

from collections.abc import Sequence

from rmqctl.pipeline.streams.history import behind_blank, offset_behind
from rmqctl.pipeline.streams.streamed_log import Backlog
from rmqctl.store.files.mapped_file_queue import MappedFileQueue

Logs = Sequence[tuple[MappedFileQueue, Backlog]]


def shared_ends(logs: Logs, most_messages: int | None, most_bytes: int | None, turn: int) -> list[int]:
    """Physical offset in each log behind what a batch may have of it; None: no limit.

    What one log has no messages for goes to the others. What cannot be divided goes to another log each time: `turn`
    counts batches.
    """
    stops = [backlog.stop for _, backlog in logs]
    if most_messages is not None:
        stops = _by_messages(logs, most_messages, turn)
    return stops if most_bytes is None else _by_bytes(logs, stops, most_bytes, turn)


def _by_messages(logs: Logs, most: int, turn: int) -> list[int]:
    """Messages are counted as far as the share of a log goes, and again where others leave something over."""
    ends = [backlog.reached for _, backlog in logs]
    waiting = [number for number, (_, backlog) in enumerate(logs) if backlog.reached < backlog.stop]
    while most and waiting:
        for number, share in _shares(waiting, most, turn):
            log, backlog = logs[number]
            ends[number], counted = offset_behind(log, ends[number], share, backlog.stop)
            most -= counted
        waiting = [number for number in waiting if ends[number] < logs[number][1].stop]
    return ends


def _by_bytes(logs: Logs, stops: Sequence[int], most: int, turn: int) -> list[int]:
    ends = [backlog.reached for _, backlog in logs]
    waiting = [number for number, end in enumerate(ends) if end < stops[number]]
    while most and waiting:
        for number, share in _shares(waiting, most, turn):
            taken = min(share, stops[number] - ends[number])
            ends[number] += taken
            most -= taken
        waiting = [number for number in waiting if ends[number] < stops[number]]
    for number in waiting:
        log, backlog = logs[number]
        ends[number] = min(stops[number], behind_blank(log, ends[number], backlog.final))
    return ends


def _shares(waiting: Sequence[int], most: int, turn: int) -> list[tuple[int, int]]:
    """As much for each of those that wait; of what is left over one for each of the first, who are others each turn."""
    first = turn % len(waiting)
    share, over = divmod(most, len(waiting))
    shares = [(number, share + (place < over)) for place, number in enumerate([*waiting[first:], *waiting[:first]])]
    return [(number, one) for number, one in shares if one]
