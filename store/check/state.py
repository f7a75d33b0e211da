"""How the store was left: abort, checkpoint against the files, modification times against store times."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError, counted, lasting, refuse_exhausted
from rmqctl.formats.layouts import CHECKPOINT_SIZE
from rmqctl.formats.message import StoredMessage
from rmqctl.formats.properties import has_queue_slot
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.cross import LogSeen
from rmqctl.store.check.log import entry_findings
from rmqctl.store.clean.plan import misdated_files
from rmqctl.store.config.config import as_a_broker_starts
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.epoch_file import EPOCH_FILE, IDENTITY_FILE, ascending, is_under_controller, read_epochs
from rmqctl.store.files.layout import StoreLayout, is_database, is_file_name, is_queue_name, is_safe_topic
from rmqctl.store.files.lock import is_new_target
from rmqctl.store.files.mapped_file_queue import FileProblem, MappedFileQueue
from rmqctl.store.files.reading import (
    is_directory,
    is_file,
    is_link,
    is_there,
    read_small_file,
    refuse_broken_link,
    status_of,
)
from rmqctl.store.journal.folder import TO_MEND
from rmqctl.store.journal.log import DAMAGED, changes
from rmqctl.store.log.survey import start_after_crash
from rmqctl.store.log.walk import walk
from rmqctl.store.queues.consumequeue import UNIT_SIZE
from rmqctl.store.queues.queue_table import (
    has_rocksdb_beside_files,
    has_rocksdb_queues,
    list_queues,
    rocksdb_folder,
    sampled_queues,
)
from rmqctl.store.read.frames import store_time_at
from rmqctl.store.store_files import Checkpoint, StoreFiles
from rmqctl.store.timer.wheel import CHECKPOINT_FILE

_FAR_FILES = 3
# messages behind the last one in a queue that are looked at, one by one
_MOST_WITHOUT_SLOT = 10_000


def state_findings(
    files: StoreFiles, seen: LogSeen, checkpoint: Checkpoint | None, has_abort: bool, largest_timestamp: int
) -> Iterator[Finding]:
    """`checkpoint` as it was before the log was looked at; `largest_timestamp`: of the messages that were, in ms."""
    crashed = has_abort and not seen.is_live
    if crashed:
        text = "the file exists, but no process has the store open"
        # without its commitlog a store cannot be recovered: that has to come back first. Queues in a RocksDB a broker
        # alone dispatches again
        fix = "" if files.missing_log() is not None or has_rocksdb_queues(files.layout) else None
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
            "the confirmed offset is past the end of the log",
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
    except CorruptError:
        return None
    newest = -1
    for queue in queues:
        unit = queue.unit(queue.max_offset - 1)
        if unit is not None and unit.is_written:
            newest = max(newest, unit.physical_offset)
    timestamp = store_time_at(files.log, newest) if newest >= 0 else None
    if timestamp is None:
        return None
    is_earlier = KnownNames.of(files).earlier_life()
    following = (record for record in walk(files.log, newest) if isinstance(record, StoredMessage))
    for number, message in enumerate(following):
        if number == 0:
            continue
        takes_slot = has_queue_slot(message.sys_flag) and is_safe_topic(message.topic)
        if takes_slot and not is_earlier(message.topic, message.physical_offset):
            return _Queued(timestamp, is_complete=False)
        if number > _MOST_WITHOUT_SLOT:
            return None
        timestamp = max(timestamp, message.store_timestamp)
    return _Queued(timestamp, is_complete=True)


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


# The files of consume queues and index as files: names, sizes, gaps, links.

_CODES = {
    "stray": "RMQ-FILE-012",
    "size": "RMQ-FILE-013",
    "empty": "RMQ-FILE-014",
    "gap": "RMQ-FILE-015",
    "overlap": "RMQ-FILE-013",
    "unreadable": "RMQ-FILE-006",
}


def queue_file_findings(files: StoreFiles) -> Iterator[Finding]:
    """Everything that can be said of the queues without reading units."""
    if has_rocksdb_queues(files.layout):
        text = "the consume queues are in a RocksDB: rmqctl reads it and never writes it"
        yield Finding("RMQ-STATE-003", text, rocksdb_folder(files.layout))
        return
    if has_rocksdb_beside_files(files.layout):
        text = "consume queues are in a RocksDB, too: those in files are used here"
        yield Finding("RMQ-STATE-003", text, rocksdb_folder(files.layout))
    for queue in files.queues.all():
        yield from _of_queue(queue.topic, queue.queue_id, queue.files)
    for root in (files.layout.consumequeue, files.layout.batchconsumequeue):
        yield from _names(root)
    for topic, queue_id, directory in list_queues(files.layout.consumequeue_ext):
        ext = MappedFileQueue([directory], files.config.mapped_file_size_consume_queue_ext, files.descriptors)
        ext.load()
        yield from _of_queue(topic, queue_id, ext)


def _of_queue(topic: str, queue_id: int, files: MappedFileQueue) -> Iterator[Finding]:
    for problem in files.problems:
        yield _problem(topic, queue_id, files, problem)
    for directory in files.directories:
        for finding in entry_findings(directory):
            # a directory in there is passed over by every version
            if finding.code != "RMQ-FILE-009":
                yield finding


def _problem(topic: str, queue_id: int, files: MappedFileQueue, problem: FileProblem) -> Finding:
    expected: int | None = None
    found: int | None = None
    if problem.kind in ("size", "empty"):
        status = status_of(problem.path)
        expected, found = files.file_size, 0 if status is None else status.st_size
    return Finding(
        _CODES[problem.kind],
        problem.detail,
        problem.path,
        topic=topic,
        queue_id=queue_id,
        expected=expected,
        found=found,
    )


def _names(root: Path) -> Iterator[Finding]:
    """Directories below a topic that are no queues, and files where topics should be, but those of a RocksDB."""
    has_database = is_database(root)
    for topic in _entries(root):
        if _is_directory(topic):
            for queue in _entries(Path(topic.path)):
                if not (is_queue_name(queue.name) and _is_directory(queue)):
                    yield Finding("RMQ-FILE-016", "no queue by its name", Path(queue.path), topic=topic.name)
        elif not is_link(topic) and not has_database:
            yield Finding("RMQ-FILE-016", "no directory of a topic", Path(topic.path))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """The listing has said what it is, of a link only that it is one."""
    return is_directory(entry) if entry.is_symlink() else entry.is_dir()


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        refuse_exhausted(error, directory)
        return []


def unfinished_changes(layout: StoreLayout) -> Iterator[Finding]:
    """Changes of rmqctl that were neither finished nor taken back."""
    for change in changes(layout):
        folder = None if change.folder is None else Path(change.folder)
        if change.is_unfinished:
            text = f"the change {change.id} is {change.state}"
            # such a one cannot be resumed, only mended
            fix = "rmqctl recover" if change.state in TO_MEND else None
            yield Finding("RMQ-STATE-002", text, folder, found=change.state, expected="applied", fix=fix)
        elif change.state == DAMAGED:
            text = f"the journal of {change.id} is damaged"
            yield Finding("RMQ-STATE-002", text, folder, found=change.state, data_lost=None, fix="rmqctl log")


# The geometry that a broker.conf says against that of the files; where they differ the check goes by the files.

_AGREEING = 2


def without_wrong_geometry(files: StoreFiles) -> tuple[StoreFiles, list[Finding]]:
    """`files` itself if the configuration fits, else the store opened without the settings that no file fits."""
    findings: list[Finding] = []
    settings: dict[str, Any] = {}
    config = as_a_broker_starts(files.config)
    for setting, sizes in _found(files):
        configured = getattr(config, setting)
        if configured is None or not sizes:
            continue
        if setting == "mapped_file_size_consume_queue":
            configured = -(-configured // UNIT_SIZE) * UNIT_SIZE
        usual = max(sizes, key=lambda size: (sizes[size], size))
        # one file alone is more likely cut short than of another geometry
        is_dropped = setting in config.dropped
        if configured in sizes or (sizes[usual] < _AGREEING and not is_dropped):
            continue
        default = " (the default)" if is_dropped else ""
        text = f"{_key(setting)}={configured}{default}, but the files have {usual}"
        findings.append(Finding("RMQ-FILE-017", text, _place(files, setting), expected=configured, found=usual))
        settings[setting] = None
    findings += _index_geometry(files, settings)
    if not settings:
        return files, findings
    return StoreFiles(files.root, files.config._replace(**settings)), findings


def _found(files: StoreFiles) -> Iterator[tuple[str, Counter[int]]]:
    layout = files.layout
    yield "mapped_file_size_commit_log", _sizes(layout.commitlog)
    for setting, root in (
        ("mapped_file_size_consume_queue", layout.consumequeue),
        ("mapper_file_size_batch_consume_queue", layout.batchconsumequeue),
        ("mapped_file_size_consume_queue_ext", layout.consumequeue_ext),
    ):
        yield setting, _sizes(sampled_queues(root))


def _place(files: StoreFiles, setting: str) -> Path:
    layout = files.layout
    places: dict[str, Callable[[], Path]] = {
        "mapped_file_size_commit_log": lambda: layout.commitlog[0],
        "mapped_file_size_consume_queue": lambda: layout.consumequeue,
        "mapper_file_size_batch_consume_queue": lambda: layout.batchconsumequeue,
        "mapped_file_size_consume_queue_ext": lambda: layout.consumequeue_ext,
    }
    return places[setting]()


def _sizes(directories: Iterable[Path]) -> Counter[int]:
    sizes: Counter[int] = Counter()
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                sizes.update(entry.stat().st_size for entry in entries if is_file_name(entry.name) and entry.is_file())
        except OSError as error:
            refuse_exhausted(error, directory)
            continue
    sizes.pop(0, None)
    return sizes


def _index_geometry(files: StoreFiles, settings: dict[str, Any]) -> Iterator[Finding]:
    if files.config.max_hash_slot_num is None and files.config.max_index_num is None:
        return
    configured = files.index.configured_geometry
    geometries = {file.geometry for file in files.index.files}
    if configured is None or not geometries or configured in geometries:
        return
    found = sorted(geometries)[-1]
    settings["max_hash_slot_num"] = settings["max_index_num"] = None
    yield Finding(
        "RMQ-FILE-017",
        f"maxHashSlotNum={configured.slots} and maxIndexNum={configured.entries}, but the files have "
        f"{found.slots} and {found.entries}",
        files.layout.index,
        expected=configured.file_size,
        found=found.file_size,
    )


def _key(setting: str) -> str:
    """The name of a setting in broker.conf."""
    first, *rest = setting.split("_")
    return first + "".join(word.capitalize() for word in rest)


# Small files besides config JSON (lock, abort, checkpoint, epochs, timer): report those that no broker reads.

_IN_CONFIG = (CHECKPOINT_FILE, "timermetrics", "transactionMetrics")


def small_file_findings(layout: StoreLayout) -> Iterator[Finding]:
    """Report each small file that is not a regular file or cannot be read. Their content is checked elsewhere."""
    yield from _lock(layout.lock)
    for path in _paths(layout):
        problem = _small_files_problem(path)
        if problem is not None:
            code = "RMQ-FILE-006" if is_file(path) else "RMQ-FILE-007"
            # nothing else says what the timer has delivered
            yield Finding(code, problem, path, data_lost=None if path.name == CHECKPOINT_FILE else False)


def _paths(layout: StoreLayout) -> Iterator[Path]:
    yield from (layout.checkpoint, layout.abort, layout.root / "timerwheel")
    for path in (
        *(layout.root / name for name in (EPOCH_FILE, IDENTITY_FILE)),
        *(layout.config / n for n in _IN_CONFIG),
    ):
        yield from (path, backup_of(path))


def _small_files_problem(path: Path) -> str | None:
    """Return why the file cannot be read, None where it can or is not there."""
    try:
        read_small_file(path, 1)
    except FileNotFoundError:
        try:
            refuse_broken_link(path)
        except UnreadableError as error:
            return error.message
    except UnreadableError as error:
        return "is a directory" if is_directory(path) else error.message
    return None


def _lock(path: Path) -> Iterator[Finding]:
    """Report a lock that cannot be taken. It is not opened: closing it would drop a lock that this process holds."""
    if not is_there(path) or is_new_target(path):
        return
    if not is_file(path):
        what = "a directory" if is_directory(path) else "a link that leads nowhere" if is_link(path) else "not a file"
        yield Finding("RMQ-FILE-060", f"it is {what}: move it out of the store by hand", path, data_lost=False)
    elif not os.access(path, os.R_OK, effective_ids=True):
        text = "cannot be opened: Permission denied. Whether a broker holds the lock is unknown"
        yield Finding("RMQ-FILE-006", text, path, data_lost=False)


# The epoch file of a store under a controller against the commitlog.


def epoch_findings(files: StoreFiles, seen: LogSeen) -> Iterator[Finding]:
    """Yield what is wrong with the epoch file."""
    path = files.layout.root / EPOCH_FILE
    try:
        epochs = read_epochs(path)
    except CorruptError as error:
        yield Finding("RMQ-EPO-002", error.message, path)
        return
    except UnreadableError:
        return  # a finding of the files
    kept = len(ascending(epochs or []))
    if epochs and kept < len(epochs):
        before, after = epochs[kept - 1 : kept + 1]
        text = f"epoch {after.number} at {after.start} follows epoch {before.number} at {before.start}"
        yield Finding("RMQ-EPO-003", text, path, after.start, expected=before.start, found=after.start)
    past = [epoch for epoch in epochs or [] if epoch.start > seen.log_end]
    if past and not seen.is_live:
        more = f" (and {counted(len(past) - 1, 'more epoch')})" if len(past) > 1 else ""
        text = f"epoch {past[0].number} begins at {past[0].start}, past the end {seen.log_end}{more}"
        yield Finding("RMQ-EPO-001", text, path, past[0].start, expected=seen.log_end, found=past[0].start)
