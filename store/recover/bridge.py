"""Replaces damaged spans inside the log by well-formed frames, so that a broker serves everything behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, parse_property_crc
from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC
from rmqctl.formats.message import (
    FrameDamage,
    FrameParts,
    Message,
    StoredMessage,
    decode_message,
    frame_bytes,
    prepare_frame,
)
from rmqctl.formats.properties import (
    MAXIMUM_PROPERTIES_SIZE,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ROLLBACK,
    encode_properties,
)
from rmqctl.store.files.reading import end_of_nonzero
from rmqctl.store.journal.journal import PlannedChange
from rmqctl.store.journal.plan import ClearRange, CreateFile, Resize, WriteRange
from rmqctl.store.log.implied import Run
from rmqctl.store.log.walk import message_without_crc
from rmqctl.store.options import ChangeOptions, Events
from rmqctl.store.recover.ext_units import Spill
from rmqctl.store.recover.lost import LogMap, Lost, Span, find_lost, survey_damage
from rmqctl.store.recover.recover import recover_with, refuse_strangers
from rmqctl.store.recover.report import Bridges, Goal, RecoverReport
from rmqctl.store.store_files import StoreFiles

# Well-formed frames that stand where damage was: fillers, which take a queue slot, and padding, which takes none.
#
# A filler has topic, queue and queue offset of the message that was lost, a body that says so to people, no tags and
# no keys, and the property RMQCTL_DAMAGED where there is room for it. Padding is a rolled back transaction of a topic
# of ours: RocketMQ puts such frames into no queue and no index (CommitLogDispatcherBuildConsumeQueue#dispatch,
# IndexService#buildIndex).

DAMAGED_PROPERTY = "RMQCTL_DAMAGED"
PADDING_TOPIC = "rmq_sys_rmqctl"
BLANK_SIZE = BLANK_FRAME.size
# below RocketMQ's own limit for a body (maxMessageSize), and little enough to be made in memory
LARGEST_PADDING = 1 << 20
_TEXT = b"rmqctl: the message that stood here was damaged and is lost"
_NOWHERE = {REAL_TOPIC: "RMQ_SYS_TRANS_HALF_TOPIC", REAL_QUEUE_ID: "0"}
# A broker's own services read these topics and need to be told that there is nothing to do: a delayed message for the
# half topic is discarded (ScheduleMessageService); a half message that was checked often enough is given up
# (TransactionalMessageServiceImpl#needDiscard); the timer's enqueue does not go on without a time (TimerMessageStore).
_FOR_SERVICES: dict[str, dict[str, str]] = {
    "SCHEDULE_TOPIC_XXXX": _NOWHERE,
    "RMQ_SYS_TRANS_HALF_TOPIC": {REAL_TOPIC: PADDING_TOPIC, REAL_QUEUE_ID: "0", "TRANSACTION_CHECK_TIMES": "1000000"},
    "rmq_sys_wheel_timer": {REAL_TOPIC: PADDING_TOPIC, REAL_QUEUE_ID: "0", "TIMER_OUT_MS": "1"},
}


class Neighbour(NamedTuple):
    """What fillers take from a good message beside the damage. `store_timestamp` in ms."""

    message: StoredMessage

    @property
    def has_property_crc(self) -> bool:
        """Whether frames of this store end with `__CRC32#`."""
        return parse_property_crc(self.message.property_bytes[-PROPERTY_CRC_SIZE:]) is not None


def filler_frame(beside: Neighbour, lost: Lost, physical_offset: int, size: int, reason: str) -> bytes:
    """The frame of exactly `size` bytes, which must be at least `filler_size` of that message. `reason`: of the
    damage."""
    topic, queue_id = lost.own.key
    needed = {**_FOR_SERVICES.get(topic, {}), **lost.properties}
    properties = {**needed, DAMAGED_PROPERTY: reason}
    room = size - _parts(beside, topic, queue_id, properties, b"", lost.sys_flag).total_size
    if room < 0:
        properties = needed
        room = size - _parts(beside, topic, queue_id, properties, b"", lost.sys_flag).total_size
    assert room >= 0, "no space for a filler"
    parts = _parts(beside, topic, queue_id, properties, _TEXT[:room].ljust(room), lost.sys_flag)
    return frame_bytes(parts, lost.own.queue_offset, physical_offset, beside.message.store_timestamp)


def filler_size(beside: Neighbour, topic: str, more: Mapping[str, str]) -> int:
    """Bytes that a filler takes at least."""
    return _parts(beside, topic, 0, {**_FOR_SERVICES.get(topic, {}), **more}, b"", 0).total_size


def marked_filler_size(beside: Neighbour, topic: str, reason: str, more: Mapping[str, str]) -> int:
    """Bytes of a filler that has RMQCTL_DAMAGED and its text in full."""
    return filler_size(beside, topic, {**more, DAMAGED_PROPERTY: reason}) + len(_TEXT)


def padding_frame(beside: Neighbour, physical_offset: int, size: int) -> bytes:
    """Padding of exactly `size` bytes, at least `padding_size(beside)`. Where not even its topic fits, as much of its
    name as fits."""
    topic = PADDING_TOPIC[: 1 + size - padding_size(beside)]
    properties = {DAMAGED_PROPERTY: "padding"}
    room = size - _parts(beside, topic, 0, properties, b"", TRANSACTION_ROLLBACK).total_size
    if room < 0:
        properties = {}
        room = size - _parts(beside, topic, 0, properties, b"", TRANSACTION_ROLLBACK).total_size
    assert room >= 0, "no space for padding"
    parts = _parts(beside, topic, 0, properties, bytes(room), TRANSACTION_ROLLBACK)
    return frame_bytes(parts, 0, physical_offset, beside.message.store_timestamp)


def padding_size(beside: Neighbour) -> int:
    """Bytes that padding takes at least: those of the smallest message that there can be."""
    return _parts(beside, PADDING_TOPIC[:1], 0, {}, b"", TRANSACTION_ROLLBACK).total_size


def blank_head(size: int) -> bytes:
    """The first bytes of a blank frame of `size` bytes; the rest may be anything."""
    return BLANK_FRAME.struct.pack(size, BLANK_MAGIC)


def lengthened_frame(message: StoredMessage, more: int) -> bytes | None:
    """Return `message` with `more` bytes of nothing after its properties; None if they do not fit.

    RocketMQ skips empty properties (MessageDecoder#string2messageProperties).
    """
    stored = message.property_bytes
    with_crc = Neighbour(message).has_property_crc
    if with_crc:
        stored = stored[:-PROPERTY_CRC_SIZE]
    stored += PROPERTY_SEPARATOR * more
    if len(stored) + PROPERTY_CRC_SIZE * with_crc > MAXIMUM_PROPERTIES_SIZE:
        return None
    copy = Message(
        topic=message.topic,
        body=message.body,
        queue_id=message.queue_id,
        flag=message.flag,
        property_bytes=stored,
        sys_flag=message.sys_flag,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    parts = prepare_frame(copy, message.store_host, message.born_timestamp, with_property_crc=with_crc)
    return frame_bytes(
        parts._replace(body_crc=message.body_crc),
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp,
    )


def _parts(
    beside: Neighbour, topic: str, queue_id: int, properties: Mapping[str, str], body: bytes, sys_flag: int
) -> FrameParts:
    message = Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        property_bytes=encode_properties(properties),
        sys_flag=sys_flag,
        born_host=beside.message.born_host.as_written,
    )
    timestamp, store_host = beside.message.store_timestamp, beside.message.store_host.as_written
    return prepare_frame(message, store_host, timestamp, with_property_crc=beside.has_property_crc)


# how much is put into the journal at once
_WRITE = 1 << 20


class FramePlace(NamedTuple):
    """Where a frame will stand. `lost`: the message that a filler replaces, None for padding."""

    physical_offset: int
    size: int
    lost: Lost | None


def recover_bridging(files: StoreFiles, change: ChangeOptions = ChangeOptions()) -> RecoverReport:
    """`recover`, but damage with good records behind it is replaced by fillers, wherever in the log it is.

    The report's `bridged` has a row for each span. RefusedError where that cannot be; otherwise as `recover`.
    """

    def goal(planned: PlannedChange) -> Goal:
        return Goal(bridges=plan_bridges(planned.files, planned.spill, change.events))

    return recover_with(files, goal, "recover", change)


def plan_bridges(files: StoreFiles, spill: Spill, events: Events = Events()) -> Bridges:
    """How every damaged span of the log that has good records behind it is to be replaced. Changes nothing.

    RefusedError where that is impossible: files that are none of the log's, or a span too small for a frame with no
    message before it.
    """
    refuse_strangers(files.log)
    spans, log_map = survey_damage(files, events)
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
    """Return places for the frames of [begin, limit), each lost message at its old place if possible; and how many of
    their slots get none for lack of space. With `must_fill` the frames end at `limit`, unless not even padding fits."""
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
    """`reason`: messages of unknown size get space for it, else the minimum."""
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
    if place.lost is None:
        return padding_frame(beside, place.physical_offset, place.size)
    return filler_frame(beside, place.lost, place.physical_offset, place.size, reason)


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
