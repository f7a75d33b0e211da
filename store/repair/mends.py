"""Plan mends outside recovery: a body checksum stored as 0, a wrong compression flag, config files, offsets."""

from __future__ import annotations

import time
from typing import Any

from rmqctl.formats.checksums import PROPERTY_CRC_SIZE, body_crc, frame_crc, parse_property_crc, property_crc_text
from rmqctl.formats.compression import is_plain
from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError, NotFoundError, RefusedError
from rmqctl.formats.layouts import FRAME_HEADS, SYS_FLAG_COMPRESSED
from rmqctl.formats.message import FrameDamage
from rmqctl.formats.properties import CRC32
from rmqctl.formats.sys_flag import compression_type
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.state.state import misdated_files
from rmqctl.store.commitlog.one_message import frame_without_crc
from rmqctl.store.config.config_files import backup_of, load_config
from rmqctl.store.config.homes import in_database, offsets_home
from rmqctl.store.journal.plan import Plan, Resize, SetTime, Staging, WriteRange, install_config
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.read.frames import message_at
from rmqctl.store.store_files import StoreFiles


def mend_checksum(files: StoreFiles, finding: Finding, plan: Plan) -> None:
    """Plan the mend of one RMQ-LOG-021. RefusedError where the frame is no longer what was found.

    A `__CRC32#` property covers the checksum of the body, so it is written anew as well; it has to be right before.
    """
    offset = finding.physical_offset
    assert offset is not None
    file = files.log.find(offset)
    assert file is not None
    try:
        stored, message = frame_without_crc(files.log, offset)
    except FrameDamage as damage:
        raise RefusedError(
            f"no message stands there: {damage.detail}",
            file=file.path,
            physical_offset=offset,
            hint="run `rmqctl check` again",
        ) from damage
    frame = bytearray(stored)
    place = FRAME_HEADS[0].offset("body_crc")
    covering = parse_property_crc(bytes(frame[-PROPERTY_CRC_SIZE:]))
    if covering is not None and covering != frame_crc(frame[:-PROPERTY_CRC_SIZE]):
        raise RefusedError(
            "the checksum of the whole frame is wrong as well, so the message is not known to be whole",
            file=file.path,
            physical_offset=offset,
            hint="`rmqctl recover --bridge` puts filler in its place",
        )
    frame[place : place + 4] = body_crc(message.body).to_bytes(4, "big")
    position = offset - file.start_offset
    plan.add(WriteRange(file.path, position + place, bytes(frame[place : place + 4])))
    if covering is not None:
        text = property_crc_text(frame_crc(frame[:-PROPERTY_CRC_SIZE]))
        plan.add(WriteRange(file.path, position + len(frame) - len(text), text))
    # brokers delete commitlog files by age: it must not look younger than it is
    plan.times[file.path] = file.path.stat().st_mtime_ns


def mend_flag(files: StoreFiles, finding: Finding, plan: Plan) -> None:
    """Plan the mend of one RMQ-LOG-032: clear the compression bit. RefusedError where the body is not plain any more,
    its CRC is wrong, or `__CRC32#` covers the flag."""
    offset = finding.physical_offset
    assert offset is not None
    file = files.log.find(offset)
    assert file is not None
    try:
        message = message_at(files.log, offset)
        if compression_type(message.sys_flag) is None or not is_plain(message.body):
            raise CorruptError("the body is not plain, or not flagged as compressed")
    except (CorruptError, NotFoundError) as error:
        raise RefusedError(
            error.message, file=file.path, physical_offset=offset, hint="run `rmqctl check --full` again"
        ) from error
    if CRC32 in message.properties():
        raise RefusedError(
            "its __CRC32# property covers the flag",
            file=file.path,
            physical_offset=offset,
            hint="`rmqctl cat --format-string` gives the body, to be sent again",
        )
    place = offset - file.start_offset + FRAME_HEADS[0].offset("sys_flag")
    flag = message.sys_flag & ~SYS_FLAG_COMPRESSED
    plan.add(WriteRange(file.path, place, flag.to_bytes(4, "big", signed=True)))
    # brokers delete commitlog files by age: it must not look younger than it is
    plan.times[file.path] = file.path.stat().st_mtime_ns


def mend_config(finding: Finding, plan: Plan, staging: Staging) -> None:
    """Plan the mend of one damaged or missing config file."""
    path = finding.file
    assert path is not None
    if finding.code == "RMQ-CFG-003":
        assert isinstance(finding.expected, int)
        plan.add(Resize(path, finding.expected))
    else:
        install_config(plan, staging, path, backup_of(path).read_bytes())


def mend_offsets(files: StoreFiles, codes: set[str], plan: Plan, staging: Staging) -> None:
    """Plan new offsets where those of consumer groups (RMQ-OFF-001) or delay levels (RMQ-OFF-003) are behind the end of
    their queue, or are none (RMQ-OFF-007)."""
    home = offsets_home(files.layout.config, files.config)
    for path, judge in ((home.path, _consumer), (files.layout.config / "delayOffset.json", _delay)):
        if in_database(path) is not None:
            continue
        loaded = load_config(path)
        table = loaded.content.get("offsetTable") if loaded is not None and isinstance(loaded.content, dict) else None
        if loaded is not None and isinstance(table, dict) and judge(files, table, codes):
            install_config(plan, staging, path, format_config_json(loaded.content).encode("utf-8"))


def _consumer(files: StoreFiles, table: dict[Any, Any], codes: set[str]) -> bool:
    changed = False
    for key, offsets in table.items():
        topic = str(key).partition("@")[0]
        for queue_id in list(offsets) if isinstance(offsets, dict) else ():
            if isinstance(queue_id, int):
                wanted = _wanted(files, topic, queue_id, offsets[queue_id], codes, "RMQ-OFF-001")
                changed |= wanted != offsets[queue_id]
                offsets[queue_id] = wanted
    return changed


def _delay(files: StoreFiles, table: dict[Any, Any], codes: set[str]) -> bool:
    changed = False
    for level in list(table):
        if isinstance(level, int):
            wanted = _wanted(files, SCHEDULE_TOPIC, level - 1, table[level], codes, "RMQ-OFF-003")
            changed |= wanted != table[level]
            table[level] = wanted
    return changed


def _wanted(files: StoreFiles, topic: str, queue_id: int, offset: Any, codes: set[str], behind: str) -> Any:
    queue = files.queues.find(topic, queue_id)
    if not (isinstance(offset, int) and offset >= 0):
        minimum = queue.min_offset(files.log.min_offset) if queue is not None else 0
        return minimum if "RMQ-OFF-007" in codes else offset
    end = queue.max_offset if queue is not None else 0
    # a consumer's offset in a queue without files is none of these findings: the queue may be at home elsewhere
    if behind not in codes or (queue is None and topic != SCHEDULE_TOPIC):
        return offset
    return min(offset, end)


def set_times(files: StoreFiles, codes: set[str], plan: Plan) -> None:
    """Plan the mtimes of commitlog files for `codes` (RMQ-TIME-001, -002): the time each was closed at.

    RefusedError where that time is in the future: a broker would keep the file, and all after it, until then.
    """
    now = time.time_ns() // 1_000_000
    changed = {operation.path for operation in plan.operations}
    for one in misdated_files(files):
        if one.code not in codes or one.file.path in changed:
            continue
        if one.closed > now:
            raise RefusedError(
                "the message after this file was stored in the future, so its time is not set by that",
                file=one.file.path,
                hint="compare the clocks: `rmqctl check --explain RMQ-TIME-003`",
            )
        plan.add(SetTime(one.file.path, one.closed * 1_000_000))
