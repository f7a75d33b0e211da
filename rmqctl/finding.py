"""What `rmqctl query` does: finds messages by id, key, offset or time and shows them. Knows nothing of click."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import CorruptError, NotFoundError, RmqctlError, UncertainError, counted, format_time
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT
from rmqctl.formats.message import is_message_id
from rmqctl.formats.properties import INNER_MULTI_DISPATCH
from rmqctl.opening import StoreLocation, log_bytes, open_store
from rmqctl.output import outcome as exit_codes
from rmqctl.store.files.layout import file_name, is_file_name, is_safe_topic, topic_directory
from rmqctl.store.options import Events
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from rmqctl.formats.message import StoredMessage
    from rmqctl.output.output import Output
    from rmqctl.store.answers.unread import MessageCopy
    from rmqctl.store.queues.consumequeue import Boundary
    from rmqctl.store.read.filter import TopicFilter
    from rmqctl.store.read.reader import StoreReader
    from rmqctl.store.store_files import StoreFiles

KEY_LIMIT = 32
_AT_COLUMNS = ("topic", "queue_id", "offset", "min_offset", "max_offset", "store_timestamp", "physical_offset")


class Question(NamedTuple):
    """What is looked for: one of `message_id`, `key`, `at` and `offset`; times in ms."""

    message_id: str | None = None
    key: str | None = None
    offset: int | None = None
    at: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    begin: int | None = None
    end: int | None = None
    boundary: Boundary = "lower"
    limit: int | None = None
    scan: bool = False
    topics: TopicFilter | None = None
    """With `key` and without `topic`: only these topics."""
    tags: str | None = None
    grep: str | None = None
    """With `key`: `tags` and `grep` as of Criteria."""
    traces: bool = False
    """With `key`: show the records of trace messages, those of `topic` or of the default trace topic."""


def find_and_show(store: StoreLocation, output: Output, wanted: Question) -> int:
    """Find, show, and return the exit code; NotFoundError, CorruptError and what opening a store raises."""
    with open_store(store) as opened:
        reader = opened.reader
        lost = opened.files.lost_log()
        if lost is not None:
            raise lost
        try:
            return _found(reader, output, wanted)
        except (NotFoundError, UncertainError) as error:
            copied = _in_copies(reader, wanted)
            if copied:
                output.talk(f"the commitlog does not have it: this is the copy in {copied[0].where}")
                messages = [one.message for one in copied[: wanted.limit or KEY_LIMIT]]
                return _show(output, messages, many=wanted.key is not None)
            lost = _in_lost_queue(reader, wanted) if isinstance(error, NotFoundError) else None
            raise lost or _in_unread_log(reader, wanted) or _with_nearest(reader, wanted, error) from None
        except CorruptError as error:
            raise _with_nearest(reader, wanted, error) from error.__cause__


def _with_nearest(reader: StoreReader, wanted: Question, error: RmqctlError) -> RmqctlError:
    """Add the nearest valid messages to the error of an offset; other errors as they are."""
    if wanted.offset is None:
        return error
    return add_nearest(error, reader.files)


def _in_lost_queue(reader: StoreReader, wanted: Question) -> CorruptError | None:
    """Return the damage that the queue which is asked for has no files; None where it has them, or is not known."""
    if wanted.topic is None or (wanted.at is None and wanted.queue_id is None):
        return None
    if wanted.offset is not None and reader.files.queues.find(wanted.topic, wanted.queue_id or 0) is not None:
        return None
    return next(iter(_behind(reader, wanted.topic, wanted.queue_id)), None)


def _in_copies(reader: StoreReader, wanted: Question) -> list[MessageCopy]:
    """Return the messages with a key, or at a queue offset, that only tiered storage or a compaction log has."""
    if wanted.topic is None or wanted.traces or (wanted.key is None and wanted.offset is None):
        return []
    from rmqctl.store.answers.unread import copied_messages
    from rmqctl.store.read.filter import Criteria

    found = copied_messages(reader.files, wanted.topic, wanted.queue_id, queue_offset=wanted.offset, key=wanted.key)
    criteria = Criteria(wanted.topic, None, wanted.tags, None, wanted.begin, wanted.end, grep=wanted.grep)
    return [one for one in found if criteria.matches(one.message)]


def _in_unread_log(reader: StoreReader, wanted: Question) -> UncertainError | None:
    """Return what to say where a log that is not read may hold the message; None where none may."""
    from rmqctl.store.answers.unread import unread_messages, unread_queues

    if wanted.offset is not None and wanted.topic is not None:
        queues = unread_queues(reader.files, wanted.topic, wanted.queue_id)
        if not any(one.holds(wanted.offset) for one in queues):
            return None
    first = next(iter(unread_messages(reader.files, wanted.topic)), None)
    if first is not None:
        first.message = f"not in the commitlog, but {first.message}"
    return first


def _found(reader: StoreReader, output: Output, wanted: Question) -> int:
    if wanted.message_id is not None:
        return _by_id(reader, output, wanted.message_id, wanted.topic, wanted.scan)
    if wanted.key is not None:
        return _by_key(reader, output, wanted.key, wanted)
    if wanted.at is not None and wanted.topic is not None:
        return _at_time(reader, output, wanted.topic, wanted.queue_id, wanted.at, wanted.boundary)
    if wanted.topic is not None and wanted.queue_id is not None and wanted.offset is not None:
        return _by_queue_offset(reader, output, wanted.topic, wanted.queue_id, wanted.offset, wanted.limit or 1)
    return _at_physical_offset(reader, output, wanted.offset or 0)


def _at_physical_offset(reader: StoreReader, output: Output, offset: int) -> int:
    """Show the message there, and say why no queue leads to it where none does."""
    from rmqctl.store.log.walk import overflowed_at

    try:
        message = reader.lookup(offset)
    except CorruptError as error:
        overflowed = overflowed_at(reader.files.log, offset)
        if overflowed is None:
            raise
        message, why = overflowed
        code = _show(output, [message], [error])
        output.talk(f"dispatch: {why}")
        return code
    code = _show(output, [message])
    for problem in dispatch_problems(reader, message):
        output.talk(f"dispatch: {problem}")
    return code


def _by_id(reader: StoreReader, output: Output, text: str, topic: str | None, scan: bool) -> int:
    from rmqctl.output.terminal import progress

    with progress("searching the commitlog", log_bytes(reader.files), "bytes") as bar:
        result = reader.telling(Events(bar.advance, note=output.talk)).find(text, topic, scan=scan)
    if not result.messages:
        where = "in the commitlog" if result.is_whole else f"in the index, of {counted(result.topics, 'topic')} asked"
        missing = NotFoundError(
            f"no message has the id {text!r}: {_as_offset_id(text)}, and it is no unique key {where}"
        )
        raise _nothing_found(output, result.damaged, missing)
    if not output.is_json:
        output.talk(f"found by {result.how}")
    return _show(output, result.messages, result.damaged)


def _as_offset_id(text: str) -> str:
    if not is_message_id(text):
        return "an offset id would have 32 or 56 hex digits"
    return "no message is at its offset"


def _by_key(reader: StoreReader, output: Output, key: str, wanted: Question) -> int:
    from rmqctl.output.terminal import progress
    from rmqctl.store.options import KeyChoice
    from rmqctl.store.read.filter import TopicFilter, unmet_names
    from rmqctl.store.read.query import END_OF_TIME, START_OF_TIME

    topics = wanted.topics or (TopicFilter() if wanted.topic is None else TopicFilter.of_one(wanted.topic))
    unmet = unmet_names(reader.files, topics)
    if wanted.topics is not None and topics.names and len(unmet) == len(topics.names):
        raise NotFoundError(
            f"no topic goes by {', '.join(map(repr, unmet))}", hint="`rmqctl ls --topics` lists the topics"
        )
    begin = START_OF_TIME if wanted.begin is None else wanted.begin
    last = END_OF_TIME if wanted.end is None else wanted.end
    choice = KeyChoice(tags=wanted.tags, grep=wanted.grep, scan=wanted.scan)
    with progress("searching the commitlog", log_bytes(reader.files), "bytes") as bar:
        told = reader.telling(Events(bar.advance, note=output.talk))
        result = told.query(topics, key, begin, last, wanted.limit or KEY_LIMIT, **choice)
    if not result.messages:
        missing = _no_key(reader, wanted, key)
        if (wanted.begin, wanted.end) != (None, None) and not result.damaged:
            missing.hint = _at_other_times(reader, topics, key) or missing.hint
        raise _nothing_found(output, result.damaged, missing)
    if wanted.traces:
        return _show_traces(output, result.messages, result.damaged, key)
    return _show(output, result.messages, result.damaged, many=True)


def _at_other_times(reader: StoreReader, topics: TopicFilter, key: str) -> str | None:
    """Return where the index has messages with the key that -b and -e leave out."""
    from rmqctl.formats.errors import format_time

    times = [message.store_timestamp for message in reader.query(topics, key).messages]
    if not times:
        return None
    span = f"from {format_time(min(times))} to {format_time(max(times))}"
    return f"{counted(len(times), 'message')} with it, stored {span}: -b and -e leave out what is stored at other times"


def _show_traces(output: Output, messages: Sequence[StoredMessage], damaged: list[CorruptError], key: str) -> int:
    from rmqctl.reports.consumers import DROPPABLE_TRACE_COLUMNS, TRACE_COLUMNS, trace_rows

    rows, unread = trace_rows(messages, key)
    damaged = [*damaged, *unread]
    if not rows:
        raise _nothing_found(output, damaged, NotFoundError(f"no trace record has the message id or key {key!r}"))
    output.rows(TRACE_COLUMNS, rows, droppable=DROPPABLE_TRACE_COLUMNS)
    _tell(output, damaged)
    return exit_codes.DAMAGE_OR_NOTHING if damaged else exit_codes.OK


def _no_key(reader: StoreReader, wanted: Question, key: str) -> NotFoundError:
    topic = wanted.topic
    if topic is not None and reader.has_topic(topic) is False:
        return NotFoundError(f"the store has no topic {topic!r}", hint="`rmqctl ls --topics` lists the topics")
    of_topic = f" of topic {topic!r}" if topic is not None else ""
    chosen = "".join(f", {flag} {said!r}" for flag, said in (("--tag", wanted.tags), ("--grep", wanted.grep)) if said)
    return NotFoundError(f"no message{of_topic} has the key {key!r}{chosen}")


def _by_queue_offset(reader: StoreReader, output: Output, topic: str, queue_id: int, offset: int, limit: int) -> int:
    queue = reader.queue(topic, queue_id)
    result = reader.get(topic, queue_id, offset, limit)
    if offset < result.min_offset and (error := reader.in_empty_file(queue, offset)) is not None:
        raise error
    if result.damaged and result.damaged[0].queue_offset == offset and limit == 1:
        raise result.damaged[0].error
    if not result.messages:
        holds = f"offsets {result.min_offset} to {result.max_offset - 1}"
        if result.min_offset >= result.max_offset:
            holds = f"no messages, its next offset is {result.max_offset}"
        missing = NotFoundError(
            f"queue {queue_id} of {topic!r} has nothing at offset {offset} ({result.status.value})",
            hint=f"the queue holds {holds}",
        )
        damaged = [unit.error for unit in result.damaged]
        # of one message `_in_log` says more than a look at the log's tail
        behind = _behind(reader, topic, queue_id, looks_at_tail=False) if offset >= result.max_offset else []
        has_slot = result.min_offset <= offset < result.max_offset and queue.unit(offset) is not None
        if not damaged and not behind and not has_slot:
            behind = _in_log(reader, topic, queue_id, offset)
        raise _nothing_found(output, [*damaged, *behind], missing)
    return _show(output, result.messages, [unit.error for unit in result.damaged])


def _in_log(reader: StoreReader, topic: str, queue_id: int, offset: int) -> list[CorruptError]:
    """Return the damage that a queue lacks this message, which is in the log, after those that it has where its slot
    is. A long log is not searched: that is for `where`."""
    from rmqctl.store.answers.config_offsets import KnownNames
    from rmqctl.store.answers.steps import Place, at_place
    from rmqctl.store.read.reader import UNASKED_BYTES

    queue, log = reader.queue(topic, queue_id), reader.files.log
    last = queue.unit(queue.max_offset - 1) if queue.max_offset else None
    is_behind = last is not None and last.is_written and offset >= queue.max_offset
    begin = last.physical_offset if is_behind and last is not None else max(log.min_offset, 0)
    if log.written_end() - begin > UNASKED_BYTES:
        return []
    message = at_place(reader, Place(topic, queue_id, offset)).message
    if message is None or message.physical_offset < begin:
        return []
    if last is None and KnownNames.of(reader.files).earlier_life()(topic, message.physical_offset):
        return []
    lacks = f"queue {queue_id} of {topic!r} lacks its message {offset}"
    hint = f"`rmqctl recover` completes the queue, `rmqctl query -o {message.physical_offset}` shows the message"
    return [CorruptError(lacks, file=queue.directory, physical_offset=message.physical_offset, hint=hint)]


def _at_time(
    reader: StoreReader, output: Output, topic: str, queue_id: int | None, timestamp: int, boundary: Boundary
) -> int:
    rows: list[dict[str, Any]] = []
    for queue in reader.queues(topic, queue_id):
        offset = reader.offset_at(topic, queue.queue_id, timestamp, boundary)
        unit = queue.unit(offset) if offset < queue.max_offset else None
        rows.append(
            {
                "topic": topic,
                "queue_id": queue.queue_id,
                "boundary": boundary,
                "offset": offset,
                "min_offset": queue.min_offset(reader.files.log.min_offset),
                "max_offset": queue.max_offset,
                "store_timestamp": reader.unit_store_time(unit) if unit is not None else None,
                "physical_offset": unit.physical_offset if unit is not None and unit.is_written else None,
            }
        )
    output.rows(_AT_COLUMNS, rows)
    behind = _behind(reader, topic, queue_id)
    _tell(output, behind)
    return exit_codes.DAMAGE_OR_NOTHING if behind else exit_codes.OK


def _behind(reader: StoreReader, topic: str, queue_id: int | None, *, looks_at_tail: bool = True) -> list[CorruptError]:
    from rmqctl.store.answers.undispatched import queues_behind
    from rmqctl.store.read.filter import TopicFilter

    return queues_behind(reader.files, TopicFilter.of_one(topic), queue_id, looks_at_tail=looks_at_tail)


def _show(
    output: Output, messages: Sequence[StoredMessage], damaged: Sequence[CorruptError] = (), *, many: bool = False
) -> int:
    from rmqctl.formats.message import unread_body_error
    from rmqctl.messages.json import (
        ALL_COLUMNS,
        DROPPABLE_COLUMNS,
        TABLE_COLUMNS,
        message_json,
        message_listing,
        message_row,
    )

    if output.format == "table" and (many or len(messages) > 1):
        output.rows(TABLE_COLUMNS, map(message_row, messages), droppable=DROPPABLE_COLUMNS)
    elif output.format == "table":
        output.record(message_listing(messages[0]))
    else:
        output.rows(TABLE_COLUMNS, map(message_json, messages), all_columns=ALL_COLUMNS)
    unread = [error for message in messages if (error := unread_body_error(message)) is not None]
    _tell(output, [*damaged, *unread])
    return exit_codes.DAMAGE_OR_NOTHING if damaged or unread else exit_codes.OK


def _nothing_found(output: Output, damaged: Sequence[CorruptError], missing: NotFoundError) -> RmqctlError:
    """Return the error to raise; where damage may hide what was asked for, name that damage first."""
    from rmqctl.output.outcome import hidden_by_damage

    if len(damaged) == 1 and isinstance(damaged[0], UncertainError):
        damaged[0].message = f"not found, but {damaged[0].message}"
        return damaged[0]
    _tell(output, damaged)
    return hidden_by_damage(len(damaged), missing, damaged[0].hint) if damaged else missing


def _tell(output: Output, damaged: Sequence[CorruptError]) -> None:
    tell = exit_codes.ToldDamage(output)
    for error in damaged:
        tell(error)


# Why no queue leads to a message, for `rmqctl query -o OFFSET`.


def dispatch_problems(reader: StoreReader, message: StoredMessage) -> list[str]:
    """Return a sentence for each reason why a broker, or a queue, does not lead to a message; empty for none."""
    from rmqctl.store.log.walk import unreadable_number

    refused = unreadable_number(message)
    if refused:
        return [f"a broker does not dispatch it: {refused}, which ends the log for its recovery"]
    if _is_led_to(reader, message):
        return []
    from rmqctl.store.answers.evidence import MISSING, WRONG, queue_steps

    steps = [step for step in queue_steps(reader, message) if step.state in (MISSING, WRONG)]
    found = [step.detail for step in steps]
    if any(step.state == WRONG for step in steps):
        found.append("a broker passes over a message whose slot is taken, and goes on")
    elif found and not _is_dispatched_after(reader, message):
        found.append("no queue leads to a later message: dispatch ended before this one, or stays at it")
    elif found:
        found.append("queues lead to later messages: dispatch passed this one, or its unit was lost since")
    if any(step.topic is not None and step.queue_id is not None for step in steps):
        found.append(
            "`rmqctl check` says which queues are concerned, `rmqctl recover` or `rebuild --queues` adds units"
        )
    return found


def _is_led_to(reader: StoreReader, message: StoredMessage) -> bool:
    """Return whether the message's own slot leads to it, with two looks and one read: a disk may be slow, and the size
    of queue files is not needed for it. False where that is not certain."""
    if not is_safe_topic(message.topic) or message.queue_offset < 0 or message.topic == SCHEDULE_TOPIC:
        return False
    if INNER_MULTI_DISPATCH in message.properties():
        return False  # it has further slots
    layout = reader.files.layout
    folder = topic_directory(layout.consumequeue, message.topic) / str(message.queue_id)
    position = message.queue_offset * CONSUMEQUEUE_UNIT.size
    try:
        starts = [int(name) for name in os.listdir(folder) if is_file_name(name)]
        start = max((one for one in starts if one <= position), default=None)
        if start is None:
            return False
        unit = reader.files.descriptors.read(folder / file_name(start), position - start, CONSUMEQUEUE_UNIT.size)
    except (OSError, RmqctlError):
        return False
    if len(unit) < CONSUMEQUEUE_UNIT.size:
        return False
    physical_offset, size, _ = CONSUMEQUEUE_UNIT.struct.unpack(unit)
    return bool(physical_offset == message.physical_offset and size == message.total_size)


def _is_dispatched_after(reader: StoreReader, message: StoredMessage) -> bool:
    """Return whether the last unit of any queue leads beyond a message."""
    for queue in reader.files.queues.all():
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written and unit.physical_offset > message.physical_offset:
            return True
    return False


# Name the valid messages around a place of the commitlog that holds none.


def add_nearest(error: RmqctlError, files: StoreFiles) -> RmqctlError:
    """Add to an error at a physical offset which valid messages are nearest; as it is where that cannot be read."""
    if error.physical_offset is None or error.physical_offset < 0:
        return error
    from rmqctl.store.log.resync import REACH, neighbours

    try:
        found = neighbours(files.log, error.physical_offset)
    except RmqctlError as unread:
        error.notes = (f"the nearest messages are not known: {unread}",)
        return error
    error.details = {
        "nearest_before": _place(found.before),
        "nearest_after": _place(found.after),
        "searched_from": found.searched_from,
        "searched_to": found.searched_to,
    }
    limit = f"at most {REACH >> 20} MiB on each side"
    error.notes = (
        _line("before", found.before, f"none from offset {found.searched_from} on ({limit})"),
        _line("after", found.after, f"none up to offset {found.searched_to} ({limit})"),
    )
    return error


def _place(message: StoredMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "physical_offset": message.physical_offset,
        "size": message.total_size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp": message.store_timestamp,
    }


def _line(side: str, message: StoredMessage | None, missing: str) -> str:
    if message is None:
        return f"nearest valid message {side}: {missing}"
    place = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
    return (
        f"nearest valid message {side}: {message.physical_offset} "
        f"({place}, stored {format_time(message.store_timestamp)})"
    )
