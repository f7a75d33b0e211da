"""Change what a broker delivers next: end pops, ordered and unordered ones, and set the offset of a delay level."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, parse_property_crc, property_crc_text
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError, counted
from rmqctl.formats.layouts import FRAME_HEADS
from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.answers.config_offsets import DELAY_FILE, OFFSET_TABLE, offset_key, offsets_of
from rmqctl.store.answers.delays import unknown_level
from rmqctl.store.config.config_files import load_config, load_what_is_left, next_version
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.journal.journal import changing
from rmqctl.store.journal.plan import Plan, WriteRange
from rmqctl.store.offsets.appended import plan_messages
from rmqctl.store.offsets.change import (
    Deciding,
    Decision,
    OffsetChange,
    OffsetsReport,
    plan_file,
    queues_lack,
    require_inside,
    with_bounds,
)
from rmqctl.store.options import ChangeOptions
from rmqctl.store.pop.load import ReviveMessage, order_entries
from rmqctl.store.pop.records import (
    CHECKPOINT_TAG,
    DELIVER_MS,
    FS,
    KV,
    KV_FOLDER,
    ORDER_FILE,
    Acknowledgement,
    KvEntry,
    OrderedPop,
    PopCheckpoint,
)  # fmt: skip
from rmqctl.store.pop.state import ACKNOWLEDGED, OVERDUE, PopState
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.frames import frame_at
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.store_files import StoreFiles

# End what unordered pops have in flight: in the checkpoints of the revive topic, which a broker reads
_BITS, _SIGN = 32, 1 << 31
# how far frames may be apart that one write puts in place, and what it has at most
_NEAR, _LARGEST_WRITE = 4096, 1 << 20
# getters of PopCheckPoint that are written and never read
_DERIVED = ("reviveTime", "cId", "rePutTimes")


class _Unordered(NamedTuple):
    """What a group has in flight by checkpoints: those, with the topic and queue of the revive topic, by their physical
    offset; and of each the queue offsets without acknowledgement. `due`: such offsets that revive takes at the next
    start, by topic and queue; `in_database`: how many messages are in flight by kvStore/."""

    checkpoints: dict[int, tuple[tuple[str, int], PopCheckpoint]]
    open_ones: dict[int, list[int]]
    due: dict[tuple[str, int], set[int]]
    in_database: int


def end_unordered(
    deciding: Deciding, wanted: tuple[str, str | None, int | None], *, finish: bool, is_all: bool
) -> list[OffsetChange]:
    """End what is in flight by checkpoints in the revive topic and in the timer, which waits for it.

    Every checkpoint gets the bits of all its messages: revive passes over these (PopReviveService#reviveMsgFromCk). The
    frames keep their size, so nothing else changes. Without `finish` a new checkpoint, which is due at once, has those
    that were not acknowledged, as after a change of the invisible time to 0; what is due anyway stays as it is.

    Return a row for each queue; none where nothing is in flight. `wanted`: the group, its topic and queue, None for
    any; `is_all`: there is nothing else to end. RefusedError for a checkpoint that is too short for the bits, for a
    group with nothing but pops in kvStore/, and without `finish` for a store that cannot be appended to.
    """
    now = time.time_ns() // 1_000_000
    found = _in_flight(deciding, wanted, 0 if finish else now)
    if found.in_database:
        group = wanted[0]
        error = RefusedError(
            f"what {group} has in flight is kept in {KV_FOLDER}/, a RocksDB that rmqctl does not write",
            hint="start the broker: clients acknowledge, and revive hands out again what is overdue",
        )
        if is_all and not found.open_ones and not found.due:
            raise error
        deciding.tell(error.message)
    log = deciding.reader.files.log
    patches: list[tuple[int, bytes]] = []
    again: dict[tuple[str, int], set[int]] = {}
    new: list[Message] = []
    for place, offsets in found.open_ones.items():
        revive, record = found.checkpoints[place]
        patches.append((place, _acknowledged(log, place, record)))
        ended = again.setdefault((record.topic, record.queue_id), set())
        left = sorted({*offsets} - ended)
        ended.update(left)
        if left and not finish:
            new.append(_released(revive, record, left, now))
    _plan_patches(log, deciding.planned.plan, sorted(patches))
    if new:
        plan_messages(deciding.planned, new, now)
    return _rows(deciding, wanted[0], again, found.due, finish=finish)


def _plan_patches(log: MappedFileQueue, plan: Plan, patches: list[tuple[int, bytes]]) -> None:
    """Plan that these frames stand at their places in the log; frames that are near each other in one write."""
    begin = 0
    for number in range(1, len(patches) + 1):
        first, (last, frame) = patches[begin][0], patches[number - 1]
        file = log.find(first)
        assert file is not None
        if number < len(patches):
            following = patches[number][0]
            is_near = following < min(last + len(frame) + _NEAR, first + _LARGEST_WRITE, file.end_offset)
            if is_near:
                continue
        data = bytearray(log.read(first, last + len(frame) - first))
        for place, changed in patches[begin:number]:
            data[place - first : place - first + len(changed)] = changed
        plan.add(WriteRange(file.path, first - file.start_offset, bytes(data)))
        # the age of a file of the log is that of its messages
        plan.times[file.path] = file.path.stat().st_mtime_ns
        begin = number


def _in_flight(deciding: Deciding, wanted: tuple[str, str | None, int | None], now: int) -> _Unordered:
    found = _Unordered({}, {}, {}, 0)
    group, topic, queue_id = wanted

    def look(at: ReviveMessage | bytes, record: PopCheckpoint | Acknowledgement | KvEntry) -> None:
        if isinstance(record, PopCheckpoint) and isinstance(at, ReviveMessage) and record.group == group:
            found.checkpoints[at.message.physical_offset] = at.revive, record

    state = PopState(deciding.reader, now, look=look, sees_all=True)
    in_database = 0
    for one in state.messages(lambda of_group, of_topic: of_group == group and topic in (None, of_topic)):
        if one.state == ACKNOWLEDGED or queue_id not in (None, one.queue_id):
            continue
        if one.way == KV:
            in_database += 1
        elif one.way == FS and one.state == OVERDUE:
            found.due.setdefault((one.topic, one.queue_id), set()).add(one.queue_offset)
        elif one.way == FS and one.record_physical_offset is not None:
            found.open_ones.setdefault(one.record_physical_offset, []).append(one.queue_offset)
    return found._replace(in_database=in_database)


def _released(revive: tuple[str, int], record: PopCheckpoint, offsets: list[int], now: int) -> Message:
    """Return the message with a checkpoint of these messages that is due at once."""
    distances = tuple(offset - offsets[0] for offset in offsets)
    due = record._replace(start=offsets[0], popped_at=now, invisible=0, distances=distances, acked=0)
    properties = {names.TAGS: CHECKPOINT_TAG, DELIVER_MS: str(now)}
    return Message(revive[0], due.body(), revive[1], properties=properties)


def _rows(
    deciding: Deciding, group: str, ended: Mapping[tuple[str, int], set[int]],
    due: Mapping[tuple[str, int], set[int]], *, finish: bool,
) -> list[OffsetChange]:  # fmt: skip
    rows = []
    for topic, number in sorted({*ended, *due}):
        count, left = len(ended.get((topic, number), ())), len(due.get((topic, number), ()))
        row = deciding.row(group, topic, number, deciding.file.offsets(group, topic).get(number))
        if finish:
            detail = "taken for consumed: " + counted(count, "message")
        elif left:
            known = counted(left, "message")
            detail = f"released, {counted(count, 'message')} to come again beside {known} due already"
        else:
            detail = f"released, {counted(count, 'message')} to come again"
        skipped, again = (count, 0) if finish else (0, count)
        rows.append(row._replace(skipped=skipped, again=again, detail=detail))
    return rows


def _acknowledged(log: MappedFileQueue, place: int, record: PopCheckpoint) -> bytes:
    """Return the frame of a checkpoint with the bits of all its messages."""
    frame, message = frame_at(log, place)
    fields: dict[str, Any] = json.loads(message.body)
    bits = (1 << min(len(record.distances), _BITS)) - 1 | record.acked & (1 << _BITS) - 1
    fields["bm"] = bits - (1 << _BITS) if bits & _SIGN else bits
    body = _fitting(fields, message)
    begin = FRAME_HEADS[message.sys_flag >> 4 & 3].size
    changed = bytearray(frame)
    changed[begin : begin + len(body)] = body
    crc = FRAME_HEADS[0].offset("body_crc")
    changed[crc : crc + 4] = body_crc(body).to_bytes(4, "big")
    if parse_property_crc(frame[-PROPERTY_CRC_SIZE:]) is not None:
        changed[-PROPERTY_CRC_SIZE:] = property_crc_text(frame_crc(changed[:-PROPERTY_CRC_SIZE]))
    return bytes(changed)


def _fitting(fields: dict[str, Any], message: StoredMessage) -> bytes:
    """Return the fields as JSON of the same size, without those that say nothing where these take too many bytes."""
    for left_out in ((), _DERIVED):
        kept = {name: value for name, value in fields.items() if name not in left_out}
        text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")
        if len(text) <= len(message.body):
            return text[:-1].ljust(len(message.body) - 1) + text[-1:]
    raise RefusedError(
        f"the checkpoint at {message.physical_offset} of {message.topic} is too short for the bits",
        hint="start the broker: clients acknowledge, and revive puts what is overdue into the retry topic",
    )


def end_pops(group: str, topic: str | None = None, queue_id: int | None = None, *, finish: bool = False) -> Decision:
    """Remove the group's last ordered pop of each queue from consumerOrderInfo.json, which unlocks the queue.

    Without `finish` the next pop hands the messages out again from the committed offset on. With it the offset goes to
    the end of the pop, so messages without acknowledgement are skipped. Unordered pops: as of `end_unordered`.
    NotFoundError where nothing is locked or in flight.
    """

    def decide(deciding: Deciding) -> list[OffsetChange]:
        path = deciding.reader.files.layout.config / ORDER_FILE
        loaded = load_config(path)
        content: dict[str, Any] = {} if loaded is None or not isinstance(loaded.content, dict) else loaded.content
        table = content.get("table")
        table = table if isinstance(table, dict) else {}
        rows: list[OffsetChange] = []
        kept: dict[Any, Any] = {}
        for name, by_queue in table.items():
            owner = offset_key(name)
            is_named = owner is not None and owner.group == group and topic in (None, owner.topic)
            if not is_named or owner is None or not isinstance(by_queue, dict):
                kept[name] = by_queue
                continue
            left = dict(by_queue)
            for key, entry in by_queue.items():
                ((_, number, pop),) = order_entries({name: {key: entry}})
                if number is None or queue_id not in (None, number):
                    continue
                if isinstance(pop, OrderedPop):
                    del left[key]
                    rows.append(_row(deciding, group, owner.topic, number, pop, finish=finish))
                else:
                    deciding.tell(f"{name} queue {number} is no ordered pop ({pop}): it stays")
            if left:
                kept[name] = left
        unordered = end_unordered(deciding, (group, topic, queue_id), finish=finish, is_all=not rows)
        if not rows and not unordered:
            raise NotFoundError(
                f"no pop of group {group!r} is open", hint="`rmqctl groups --pop` shows what is in flight"
            )
        if not rows:
            return unordered
        deciding.write(path, format_config_json({**content, "table": kept}).encode("utf-8"))
        return sorted([*rows, *unordered], key=lambda row: row[:3])

    return decide


def _row(deciding: Deciding, group: str, topic: str, queue_id: int, pop: OrderedPop, *, finish: bool) -> OffsetChange:
    before = deciding.file.offsets(group, topic).get(queue_id)
    open_ones = [offset for at, offset in enumerate(pop.offsets) if not pop.is_acked(at)]
    last = pop.offsets[-1] + 1
    row = deciding.row(group, topic, queue_id, last if finish else before)
    if finish:
        done = "taken for consumed: " + counted(len(open_ones), "message")
        return row._replace(skipped=len(open_ones), again=0, detail=done)
    again = last - (pop.next_offset if before is None else before)
    return row._replace(
        again=max(0, again), skipped=0, detail=f"unlocked, {counted(max(0, again), 'message')} to come again"
    )


# Set the offset of a delay level in delayOffset.json: the next message that the broker delivers.

_VERSION = "dataVersion"


def set_delay_offset(
    files: StoreFiles, level: int, offset: int, change: ChangeOptions, *, anywhere: bool = False
) -> OffsetsReport:
    """Set a delay level, the queue `level` - 1 of SCHEDULE_TOPIC_XXXX, to `offset`. The file's content goes to its
    backup, as a broker does it, and both as they were into the journal.

    RefusedError for an offset outside of the queue and for a level that messageDelayLevel lacks, unless `anywhere`.
    StoreInUseError. Where the file and its backup are damaged, what can still be read of them is kept.
    """
    report = OffsetsReport(dry_run=change.dry_run)
    with changing(files, "offsets", change, mends=False) as planned:
        path = planned.files.layout.config / DELAY_FILE
        loaded, note = load_what_is_left(path)
        report.notes += [note] if note else []
        content = _table_in(loaded.content) if loaded is not None else {}
        if loaded is not None and loaded.source != path:
            report.notes.append(f"{path} is missing, empty or damaged: its backup is what is changed")
        table = content.get(OFFSET_TABLE) or {}
        behind = queues_lack(planned.files, report.notes.append)
        row = _delay_row(StoreReader(planned.files), level, offsets_of(table).get(level), offset, behind)
        if not anywhere:
            _require_level(planned.files, level)
            require_inside(row, "set-delay")
        report.rows = [row]
        if row.is_change:
            report.changed, report.skipped, report.again = 1, row.skipped or 0, row.again or 0
            planned.plan.messages_skipped = report.skipped
            plan_file(planned, path, _content_with(content, level, offset))
        report.operations = planned.rows()
    report.journal = planned.kept_in
    return report


def _delay_row(
    reader: StoreReader, level: int, before: int | None, offset: int, behind: Mapping[tuple[str, int], int]
) -> OffsetChange:
    """The change of one level. A broker begins at 0 with a level that its file does not name
    (ScheduleMessageService#start)."""
    detail = f"delay level {level}"
    row = with_bounds(reader, OffsetChange("", SCHEDULE_TOPIC, level - 1, before or 0, offset, detail=detail), behind)
    return row._replace(before=before)


def _require_level(files: StoreFiles, level: int) -> None:
    levels = len(files.config.delay_levels())
    if not 1 <= level <= levels:
        raise RefusedError(unknown_level(levels), hint="-c names the broker.conf; `rmqctl delays` lists the levels")


def _table_in(content: Any) -> dict[Any, Any]:
    """The content of delayOffset.json; CorruptError where that is not a table of offsets."""
    if content is None:
        return {}
    table = content.get(OFFSET_TABLE, {}) if isinstance(content, dict) else None
    if not isinstance(table, dict):
        raise CorruptError(
            f"{DELAY_FILE} holds no table {OFFSET_TABLE}", hint="`rmqctl offsets lint` shows what it holds"
        )
    return dict(content)


def _content_with(content: Mapping[Any, Any], level: int, offset: int) -> bytes:
    """The file with one level changed, as DelayOffsetSerializeWrapper is written; 4.x has no dataVersion."""
    table = dict(sorted({**(content.get(OFFSET_TABLE) or {}), level: offset}.items()))
    after = {**content, OFFSET_TABLE: table}
    if isinstance(content.get(_VERSION), dict):
        after[_VERSION] = next_version(content[_VERSION], time.time_ns() // 1_000_000)
    return format_config_json(after).encode("utf-8")
