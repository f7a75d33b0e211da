"""Findings about messages that are well formed: clocks, checksums that cover nothing, topics that are no names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rmqctl.formats.compression import is_plain
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.properties import CRC32
from rmqctl.formats.sys_flag import compression_name
from rmqctl.formats.wording import counted, lasting
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.log.batch_look import Look, Occurrences
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.frames import message_at

_LONGEST_DIRECTORY = 255


def message_findings(log: MappedFileQueue, look: Look, last_message_offset: int) -> Iterator[Finding]:
    """What the look at every message says; the last message is looked at closely in any case."""
    zero = look.zero_texts.first or _torn_text(log, last_message_offset)
    for physical_offset in zero:
        yield _at(log, "RMQ-LOG-016", "topic or properties of the message are zeros", physical_offset, 1, True)
    for physical_offset in look.unpackable.first:
        yield _unpackable(log, physical_offset)
    if look.uncovered:
        yield Finding(
            "RMQ-LOG-017",
            f"{look.uncovered} of {counted(look.messages, 'message has', 'messages have')} no __CRC32#",
            messages=look.uncovered,
        )
    if look.zero_crcs.count:
        text = f"{counted(look.zero_crcs.count, 'message has', 'messages have')} a body checksum of 0 that is right"
        yield _of_places(log, "RMQ-LOG-022", text, look.zero_crcs)
    yield from _clocks(log, look)


def _clocks(log: MappedFileQueue, look: Look) -> Iterator[Finding]:
    if look.future.count:
        text = f"{counted(look.future.count, 'message has', 'messages have')} a store time that is still to come"
        yield _of_places(log, "RMQ-TIME-003", text, look.future)
    if look.jumps.count:
        text = f"the store time falls {counted(look.jumps.count, 'time')}, by {lasting(look.largest_jump)} at most"
        yield _of_places(log, "RMQ-TIME-004", text, look.jumps, found=-look.largest_jump)
    if look.born_ahead.count:
        text = (
            counted(look.born_ahead.count, "message was born", "messages were born")
            + f" up to {lasting(look.largest_born_ahead)} later than stored"
        )
        yield _of_places(log, "RMQ-TIME-005", text, look.born_ahead, found=look.largest_born_ahead)


def topic_findings(messages: dict[str, int]) -> Iterator[Finding]:
    """Topics, with the messages of each, that cannot be directories."""
    for topic, count in messages.items():
        if is_safe_topic(topic):
            continue
        if set(topic) == {"\0"}:
            yield Finding("RMQ-LOG-016", "the topic is zeros", topic=topic, messages=count, data_lost=True)
        elif "\0" in topic or "/" in topic or topic in (".", ".."):
            text = f"{counted(count, 'message')} of a topic that is no name of a directory"
            yield Finding("RMQ-LOG-018", text, topic=topic, messages=count)
        else:
            size = len(topic.encode("utf-8", "surrogatepass"))
            text = f"{counted(count, 'message')} of a topic of {size} bytes, more than {_LONGEST_DIRECTORY}"
            yield Finding("RMQ-LOG-019", text, topic=topic, expected=_LONGEST_DIRECTORY, found=size, messages=count)


def _torn_text(log: MappedFileQueue, physical_offset: int) -> list[int]:
    """The last message's offset if its properties were never written: a tear there shows in no checksum."""
    if physical_offset < 0:
        return []
    try:
        properties = message_at(log, physical_offset).property_bytes
    except RmqctlError:
        return []
    return [physical_offset] if properties and 0 in (properties[0], properties[-1]) else []


def _unpackable(log: MappedFileQueue, physical_offset: int) -> Finding:
    """A body that does not unpack: stored plain under a wrong flag, or a stream that is damaged."""
    why = ""
    try:
        message = message_at(log, physical_offset)
        if is_plain(message.body):
            name = compression_name(message.sys_flag)
            text = f"the flag says that the body is compressed ({name}), but it is stored plain; its CRC holds"
            finding = _at(log, "RMQ-LOG-032", text, physical_offset, 1, False)
            if CRC32 in message.properties():
                text += "; __CRC32# covers the flag"
                finding = replace(finding, message=text, fix="")
            return finding
        message.plain_body()
    except RmqctlError as error:
        why = f": {error.message}"
    return _at(log, "RMQ-LOG-020", f"the compressed body does not unpack{why}", physical_offset, 1, None)


def _at(
    log: MappedFileQueue, code: str, text: str, physical_offset: int, messages: int, data_lost: bool | None
) -> Finding:
    file = log.find(physical_offset)
    topic, queue_id = None, None
    try:
        message = message_at(log, physical_offset)
        topic, queue_id = message.topic, message.queue_id
    except RmqctlError:
        pass
    path = None if file is None else file.path
    return Finding(code, text, path, physical_offset, topic, queue_id, messages=messages, data_lost=data_lost)


def _of_places(log: MappedFileQueue, code: str, text: str, places: Occurrences, found: int | None = None) -> Finding:
    """One finding for many messages, at the place of the first."""
    file = log.find(places.first[0])
    path = None if file is None else file.path
    return Finding(code, text, path, places.first[0], found=found, messages=places.count)
