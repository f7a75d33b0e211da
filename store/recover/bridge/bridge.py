"""Replaces damaged spans inside the log by well-formed frames, so that a broker serves everything behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.store.commitlog.one_message import message_without_crc
from rmqctl.store.commitlog.walk import Progress
from rmqctl.store.files.zeros import end_of_nonzero
from rmqctl.store.journal.frame import PlannedChange, Terms
from rmqctl.store.journal.plan import Agree, ClearRange, CreateFile, Resize, WriteRange
from rmqctl.store.recover.bridge.filler import (
    BLANK_SIZE,
    LARGEST_PADDING,
    Neighbour,
    blank_head,
    filler_frame,
    filler_size,
    lengthened_frame,
    marked_filler_size,
    padding_frame,
    padding_size,
)
from rmqctl.store.recover.bridge.lost import Lost, find_lost
from rmqctl.store.recover.bridge.spans import LogMap, Span, survey_damage
from rmqctl.store.recover.mend.queue_files import Spill
from rmqctl.store.recover.recover import recover_with
from rmqctl.store.recover.recovery import refuse_strangers
from rmqctl.store.recover.report import Bridges, Goal, RecoverReport
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_runs import Run

# how much is put into the journal at once
_WRITE = 1 << 20


class FramePlace(NamedTuple):
    """Where a frame will stand. `lost`: the message that a filler stands for, None for padding."""

    physical_offset: int
    size: int
    lost: Lost | None


def recover_bridging(
    files: StoreFiles,
    *,
    dry_run: bool = False,
    keeps: bool = True,
    arguments: list[str] | None = None,
    journal_in: Path | None = None,
    progress: Progress | None = None,
    agree: Agree | None = None,
) -> RecoverReport:
    """`recover`, but damage with good records behind it is replaced by fillers, wherever in the log it is.

    The report's `bridged` has a row for each span. RefusedError where that cannot be; otherwise as `recover`.
    """

    def goal(change: PlannedChange) -> Goal:
        return Goal(bridges=plan_bridges(change.files, change.spill, progress))

    return recover_with(files, goal, "recover", Terms(dry_run, keeps, arguments, journal_in, agree), progress)


def plan_bridges(files: StoreFiles, spill: Spill, progress: Progress | None = None) -> Bridges:
    """How every damaged span of the log that has good records behind it is to be replaced. Changes nothing.

    RefusedError where that is impossible: files that are none of the log's, or a span too small for a frame with no
    message before it.
    """
    refuse_strangers(files.log)
    spans, log_map = survey_damage(files, progress)
    bridges = Bridges()
    for span, lost in zip(spans, find_lost(files, spans, log_map), strict=True):
        _bridge(files, bridges, span, lost, log_map, spill)
    return bridges


def _bridge(files: StoreFiles, bridges: Bridges, span: Span, lost: list[Lost], log_map: LogMap, spill: Spill) -> None:
    beside = _neighbour(files, span, log_map)
    limit = span.end - BLANK_SIZE if span.is_to_file_end else span.end
    places, given_up = lay_out(beside, lost, span.begin, limit, span.reason, must_fill=not span.is_to_file_end)
    _prepare_file(files, bridges, span)
    if not places and not span.is_to_file_end:
        _lengthen(bridges, span, beside.message, spill)
    fillers: list[StoredMessage] = []
    _write(bridges, span, _frames(beside, places, span.reason, fillers), spill)
    end = places[-1].physical_offset + places[-1].size if places else span.begin
    if span.is_to_file_end:
        _end_file(files, bridges, span, end, spill)
    if places:
        last, timestamp = places[-1].physical_offset, beside.message.store_timestamp
        run = Run(span.begin, end, len(places), last, timestamp, special=list(enumerate(fillers)))
        bridges.runs.append(run)
    bridges.rows.append(
        {
            "file": str(span.path),
            "physical_offset": span.begin,
            "end_offset": span.end,
            "reason": span.reason,
            "fillers": len(fillers),
            "padding_bytes": span.end - span.begin - sum(place.size for place in places if place.lost is not None),
            "slots_given_up": given_up,
        }
    )


def _neighbour(files: StoreFiles, span: Span, log_map: LogMap) -> Neighbour:
    """The good message before the span, else the one behind it."""
    offset = log_map.runs[span.run][2] if span.run >= 0 else log_map.runs[0][0]
    try:
        return Neighbour(message_without_crc(files.log, offset))
    except FrameDamage as damage:
        raise RefusedError(
            f"has changed while it was read: {damage}", file=span.path, physical_offset=offset, hint="run it again"
        ) from damage


def lay_out(
    beside: Neighbour, lost: list[Lost], begin: int, limit: int, reason: str, *, must_fill: bool
) -> tuple[list[FramePlace], int]:
    """Places for the frames of [begin, limit), each lost message where it stood if that can be; and how many of their
    slots get none for want of room. With `must_fill` the frames end at `limit`, unless not even padding fits."""
    kept = list(lost)
    places = _placed(beside, kept, begin)
    marked = _placed(beside, kept, begin, reason)
    if _end(marked, begin) <= limit and _told(marked) == _told(places):
        places = marked
    if _end(places, begin) > limit:
        # as closely as they fit: what a unit said about place and size is not needed, units are made anew
        kept = [replace(message, physical_offset=-1, size=0) for message in kept]
        while kept and _end(places := _placed(beside, kept, begin), begin) > limit:
            kept.pop()
        places = places if kept else []
    rest = limit - _end(places, begin)
    if must_fill and rest:
        if rest >= padding_size(beside):
            places += _padding(beside, _end(places, begin), rest)
        elif places:
            places[-1] = places[-1]._replace(size=places[-1].size + rest)
    return places, sum(max(1, message.own.batch_size) for message in lost[len(kept) :])


def _placed(beside: Neighbour, lost: list[Lost], begin: int, reason: str | None = None) -> list[FramePlace]:
    """`reason`: messages of which no size is known get room for it, else as little as they can have."""
    places: list[FramePlace] = []
    position = begin
    for message in lost:
        topic, properties = message.own.key[0], message.properties
        least = size = filler_size(beside, topic, properties)
        if message.size:
            gap = message.physical_offset - position
            if gap >= padding_size(beside):
                places += _padding(beside, position, gap)
                position = message.physical_offset
            # too little for padding is added to the filler; what an earlier one takes is taken from it
            size = max(least, message.physical_offset + message.size - position)
        elif reason is not None:
            size = marked_filler_size(beside, topic, reason, properties)
        places.append(FramePlace(position, size, message))
        position += size
    return places


def _told(places: list[FramePlace]) -> list[tuple[int, int]]:
    """Where those stand whose place is known."""
    return [(place.physical_offset, place.size) for place in places if place.lost is not None and place.lost.size]


def _end(places: list[FramePlace], begin: int) -> int:
    return places[-1].physical_offset + places[-1].size if places else begin


def _padding(beside: Neighbour, position: int, length: int) -> Iterator[FramePlace]:
    while length:
        size = min(length, LARGEST_PADDING)
        if 0 < length - size < padding_size(beside):
            size -= padding_size(beside)
        yield FramePlace(position, size, None)
        position += size
        length -= size


def _frames(beside: Neighbour, places: list[FramePlace], reason: str, fillers: list[StoredMessage]) -> Iterator[bytes]:
    """The frames one after the other. `fillers` gets those that take a slot, as the walk will find them but without
    their bodies: nothing is written that is not good by our own rules, and a whole file need not be in memory."""
    for place in places:
        frame = _frame(beside, place, reason)
        message = decode_message(frame, 0, len(frame), place.physical_offset)
        if place.lost is not None:
            fillers.append(message._replace(body=b""))
        yield frame


def _frame(beside: Neighbour, place: FramePlace, reason: str) -> bytes:
    lost = place.lost
    if lost is None:
        return padding_frame(beside, place.physical_offset, place.size)
    topic, queue_id = lost.own.key
    return filler_frame(
        beside,
        topic,
        queue_id,
        lost.own.queue_offset,
        place.physical_offset,
        place.size,
        reason,
        lost.properties,
        lost.sys_flag,
    )


def _prepare_file(files: StoreFiles, bridges: Bridges, span: Span) -> None:
    if span.path in bridges.paths or span.existing >= span.file_size:
        return
    is_there = span.existing or span.path in files.log.empty_files().values()
    bridges.operations.add((Resize if is_there else CreateFile)(span.path, span.file_size))
    bridges.paths.add(span.path)


def _write(bridges: Bridges, span: Span, frames: Iterator[bytes], spill: Spill) -> None:
    position, waiting = span.begin - span.file_start, bytearray()
    for frame in frames:
        waiting += frame
        if len(waiting) >= _WRITE:
            bridges.operations.add(WriteRange(span.path, position, spill(bytes(waiting))))
            position += len(waiting)
            waiting.clear()
    if waiting:
        bridges.operations.add(WriteRange(span.path, position, spill(bytes(waiting))))


def _end_file(files: StoreFiles, bridges: Bridges, span: Span, end: int, spill: Spill) -> None:
    """A blank frame up to the file's end, and nothing behind its head."""
    position = end - span.file_start
    bridges.operations.add(WriteRange(span.path, position, spill(blank_head(span.end - end))))
    begin = position + BLANK_SIZE
    if span.existing > begin:
        stop = end_of_nonzero(files.descriptors, span.path, begin, min(span.existing, span.file_size))
        if stop > begin:
            bridges.operations.add(ClearRange(span.path, begin, stop - begin))


def _lengthen(bridges: Bridges, span: Span, message: StoredMessage, spill: Spill) -> None:
    """A span too small for any frame becomes a part of the message before it."""
    frame = lengthened_frame(message, span.end - span.begin) if message.end == span.begin else None
    if frame is None or len(frame) != span.end - message.physical_offset:
        raise RefusedError(
            f"{span.end - span.begin} damaged bytes are too few for a frame, and no message before them can take them",
            file=span.path,
            physical_offset=span.begin,
            hint="`rmqctl recover --full --cut` ends the log there",
        )
    bridges.operations.add(WriteRange(span.path, message.physical_offset - span.file_start, spill(frame)))
    bridges.lengthened[message.physical_offset] = len(frame)
