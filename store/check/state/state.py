"""How the store was left: abort, checkpoint against the files, modification times against store times."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from rmqctl.formats.errors import UnsupportedError
from rmqctl.formats.layouts import CHECKPOINT_SIZE
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.sys_flag import has_queue_slot
from rmqctl.formats.wording import counted, lasting
from rmqctl.store.answers.known_names import KnownNames
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.checkpoint import Checkpoint
from rmqctl.store.commitlog.walk import walk
from rmqctl.store.config.epoch_file import is_under_controller
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.mapped_file import MappedFile
from rmqctl.store.files.presence import is_file, is_there
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.survey.log_survey import start_after_crash

_FAR_FILES = 3
# messages behind the last one in a queue that are looked at, one by one
_MOST_WITHOUT_SLOT = 10_000
# a sealed file is flushed within seconds; time zones and slow copies are no reason to complain
_MTIME_TOLERANCE_MS = 3_600_000
_NANOSECONDS = 1_000_000


def state_findings(
    files: StoreFiles, seen: LogSeen, checkpoint: Checkpoint | None, has_abort: bool, largest_timestamp: int
) -> Iterator[Finding]:
    """`checkpoint` as it was before the log was looked at; `largest_timestamp`: of the messages that were, in ms."""
    crashed = has_abort and not seen.is_live
    if crashed:
        text = "it is there, but nobody has the store open"
        # without its commitlog a store cannot be recovered: that has to come back first
        fix = "" if files.missing_log() is not None else None
        yield Finding("RMQ-STATE-001", text, files.layout.abort, fix=fix)
    if files.log.files:
        yield from _checkpoint(files, seen, checkpoint, crashed, largest_timestamp)
        yield from _times(files)


def _is_of_a_start_without_messages(files: StoreFiles, checkpoint: Checkpoint) -> bool:
    """Return whether the confirmed offset is the end of a commitlog file: a broker without a controller keeps that
    when it starts on files without a message (CommitLog#recoverNormally), and does not go by it."""
    log, confirmed = files.log, checkpoint.confirm_physical_offset
    is_end_of_file = confirmed % log.file_size == 0 and confirmed <= log.max_offset
    return is_end_of_file and not is_under_controller(files.layout)


def _checkpoint(
    files: StoreFiles, seen: LogSeen, checkpoint: Checkpoint | None, crashed: bool, largest_timestamp: int
) -> Iterator[Finding]:
    path = files.layout.checkpoint
    size = path.stat().st_size if is_file(path) else None
    if size is None:
        if not is_there(path) and seen.log_end > seen.log_begin:
            yield Finding("RMQ-CKPT-001", "there is no checkpoint file", path)
        return
    if size != CHECKPOINT_SIZE:
        text = f"{counted(size, 'byte')} instead of {CHECKPOINT_SIZE}"
        yield Finding("RMQ-CKPT-002", text, path, expected=CHECKPOINT_SIZE, found=size)
    if checkpoint is None:
        return
    if min(checkpoint) < 0:
        names = [name for name, value in checkpoint._asdict().items() if value < 0]
        yield Finding("RMQ-CKPT-006", f"{', '.join(names)} below 0", path, found=min(checkpoint))
        return
    yield from _ahead(files, checkpoint, largest_timestamp)
    if checkpoint.confirm_physical_offset > seen.log_end and not _is_of_a_start_without_messages(files, checkpoint):
        yield Finding(
            "RMQ-CKPT-005",
            "the confirmed offset lies behind the end of the log",
            path,
            seen.log_end,
            expected=seen.log_end,
            found=checkpoint.confirm_physical_offset,
        )
    if checkpoint.logics_physical_offset > seen.log_end:
        yield Finding(
            "RMQ-CKPT-030",
            "the offset of the last queue unit is beyond the end of the log",
            path,
            seen.log_end,
            expected=f"at most {seen.log_end}",
            found=checkpoint.logics_physical_offset,
        )
    if crashed:
        start = start_after_crash(files.log, checkpoint)
        bytes_again = seen.log_end - start
        if bytes_again > _FAR_FILES * files.log.file_size:
            text = f"the next start reads {bytes_again} bytes of the log again, from offset {start} on"
            yield Finding("RMQ-CKPT-004", text, path, start, bytes=bytes_again)


def _ahead(files: StoreFiles, checkpoint: Checkpoint, largest_timestamp: int) -> Iterator[Finding]:
    log = files.log
    heads = (store_time_at(log, file.start_offset) for file in log.files)
    newest = max(largest_timestamp, *(time for time in heads if time is not None), 0, 0)
    ahead: list[tuple[str, int, int]] = []
    if newest and checkpoint.physic_msg_timestamp > newest:
        ahead.append(("commitlog", newest, checkpoint.physic_msg_timestamp))
    queued = _queued(files)
    if queued is not None and checkpoint.logics_msg_timestamp > queued.store_timestamp:
        ahead.append(("consume queues", queued.store_timestamp, checkpoint.logics_msg_timestamp))
    indexed = max((file.header.end_timestamp for file in files.index.files), default=0)
    if checkpoint.index_msg_timestamp > max(indexed, newest):
        ahead.append(("index", indexed, checkpoint.index_msg_timestamp))
    if ahead:
        text = ", ".join(
            f"{lasting(said - held)} ahead of the newest message of the {name}" for name, held, said in ahead
        )
        _, held, said = ahead[0]
        # where queues or index are behind, the checkpoint is right and they are to be completed
        is_complete = queued is None or queued.is_complete
        fix = (
            None
            if ahead[0][0] == "commitlog" or (ahead[0][0] == "consume queues" and is_complete)
            else "rmqctl recover"
        )
        yield Finding("RMQ-CKPT-003", text, files.layout.checkpoint, expected=held, found=said, fix=fix)


class _Queued(NamedTuple):
    """Up to which store time the queues have what they should have; whether that is up to the end of the log."""

    store_timestamp: int
    is_complete: bool


def _queued(files: StoreFiles) -> _Queued | None:
    """By the newest message that any queue points at, and those behind it that take no slot; None if that cannot be
    known."""
    try:
        queues = files.queues.all()
    except UnsupportedError:
        return None
    newest = -1
    for queue in queues:
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written:
            newest = max(newest, unit.physical_offset)
    timestamp = store_time_at(files.log, newest) if newest >= 0 else None
    if timestamp is None:
        return None
    is_removed = functools.cache(KnownNames.of(files).is_removed)
    following = (record for record in walk(files.log, newest) if isinstance(record, StoredMessage))
    for number, message in enumerate(following):
        if number == 0:
            continue
        if has_queue_slot(message.sys_flag) and is_safe_topic(message.topic) and not is_removed(message.topic):
            return _Queued(timestamp, is_complete=False)
        if number > _MOST_WITHOUT_SLOT:
            return None
        timestamp = max(timestamp, message.store_timestamp)
    return _Queued(timestamp, is_complete=True)


class Misdated(NamedTuple):
    """A commitlog file that is not the last, and by how much its mtime is later than its last message, in ms.

    `closed`: when the file was closed, by the store time of the next file's first message, in ms.
    """

    file: MappedFile
    closed: int
    difference: int

    @property
    def code(self) -> str:
        """The code of the finding."""
        return "RMQ-TIME-001" if self.difference > 0 else "RMQ-TIME-002"


def misdated_files(files: StoreFiles) -> Iterator[Misdated]:
    """Return closed commitlog files whose mtime is not that of their messages.

    A broker closes a file when it stores the next message, which sets the file's mtime; so the first message of the
    next file says when that was.
    """
    last = files.log.last_with_data()
    for file, following in itertools.pairwise(files.log.files):
        if file is last:
            return
        closed = store_time_at(files.log, following.start_offset)
        try:
            modified = file.path.stat().st_mtime_ns // _NANOSECONDS
        except OSError:  # expired meanwhile
            continue
        if closed is not None and abs(modified - closed) > _MTIME_TOLERANCE_MS:
            yield Misdated(file, closed, modified - closed)


def _times(files: StoreFiles) -> Iterator[Finding]:
    found = list(misdated_files(files))
    for code, word in (("RMQ-TIME-001", "later"), ("RMQ-TIME-002", "earlier")):
        ones = [one for one in found if one.code == code]
        if ones:
            worst = max(ones, key=lambda one: abs(one.difference))
            count = f"{len(ones)} files were" if len(ones) > 1 else "the file was"
            text = f"{count} modified up to {_duration(abs(worst.difference))} {word} than the last message there"
            yield Finding(code, text, worst.file.path, worst.file.start_offset, found=worst.difference)


def _duration(milliseconds: int) -> str:
    """In hours or days, whichever says more."""
    hours = milliseconds // 3_600_000
    return counted(hours, "hour") if hours < 72 else f"{hours // 24} days"
