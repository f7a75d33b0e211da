"""The numbers that `info` and `ls` show. Looked at, never changed; damage is counted, never hidden."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, RemovedError, RmqctlError, UnreadableError, counted
from rmqctl.formats.notebook import as_html
from rmqctl.store.answers.config_offsets import KnownNames
from rmqctl.store.answers.undispatched import queues_behind
from rmqctl.store.config.accounts import USERS, account_databases, is_secret_folder
from rmqctl.store.config.config_database import databases, is_readable_form
from rmqctl.store.config.epoch_file import controller_row
from rmqctl.store.dump.recognise import FileKind, Recognised, recognise
from rmqctl.store.files.io import on_disk_bytes
from rmqctl.store.files.layout import StoreLayout, is_database, is_file_name
from rmqctl.store.files.lock import is_another, is_in_use, mapped_files, opened_files, processes
from rmqctl.store.files.reading import exists, status_of
from rmqctl.store.info import counts as log_numbers
from rmqctl.store.info.counts import LogCells, LogNumbers, arrays_pay, count_queue, count_topics, new_map
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.log.survey import settled_end
from rmqctl.store.options import Events
from rmqctl.store.queues.consumequeue import ConsumeQueue
from rmqctl.store.queues.queue_table import AnyConsumeQueue, has_rocksdb_queues
from rmqctl.store.queues.rocksdb_queues import RocksdbQueues
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.read.tiered_index import local_index_row
from rmqctl.store.rocksdb.database import Database
from rmqctl.store.store_files import StoreFiles, unread_copies

_Row = dict[str, Any]


def count_log(files: StoreFiles, events: Events = Events()) -> LogNumbers:
    """Walk the whole log, CRCs checked, and count. What a writer puts there meanwhile is not judged."""
    settled = settled_end(files.log) if is_in_use(files.layout) else None
    numbers = log_numbers.count_log(files.log, events)
    numbers.damages = [one for one in numbers.damages if settled is None or one.physical_offset < settled]
    return numbers


def info(files: StoreFiles, *, walk_log: bool = True, events: Events = Events()) -> _Row:
    """The store at a glance (design of the JSON: docs/commands.md).

    With `walk_log` messages, bytes, times, the log's end and its damage are exact; without it they are None:
    zeros may follow the last message up to the end of the last file.
    """
    log = files.log
    numbers = count_log(files, events) if walk_log else None
    checkpoint = files.readable_checkpoint()
    holder = files.lock_holder()
    return {
        "path": str(files.root),
        "commitlog": {
            "files": len(log.files),
            "file_size": log.file_size,
            "min_offset": max(log.min_offset, 0),
            "max_offset": numbers.end if numbers else None,
            "messages": numbers.messages if numbers else None,
            "bytes": numbers.bytes if numbers else None,
            "first_store_timestamp": numbers.first_store_timestamp if numbers else None,
            "last_store_timestamp": numbers.last_store_timestamp if numbers else None,
            "damaged_spans": len(numbers.damages) if numbers else None,
            "damaged_bytes": sum(span.end - span.physical_offset for span in numbers.damages) if numbers else None,
            "problems": [f"{problem.path.name}: {problem.detail}" for problem in log.problems]
            + [missing for missing in (files.missing_log(),) if missing is not None],
        },
        "dledger": _dledger_info(files),
        "controller": controller_row(files.layout, checkpoint and checkpoint.confirm_physical_offset),
        "not_read": not_read(files),
        "databases": databases_info(files),
        "consumequeue": _queues_info(files),
        "index": {
            "files": len(files.index.files),
            "entries": sum(file.header.index_count - 1 for file in files.index.files),
            "problems": [f"{path.name}: {problem}" for path, problem in files.index.problems],
        },
        "tiered_index": local_index_row(files),
        "checkpoint": None if checkpoint is None else dict(checkpoint._asdict()),
        "abort": files.has_abort(),
        "locked": holder is not None,
        "lock_holder": holder,
        "clean_shutdown": not files.has_abort(),
        "unfinished_change": _unfinished(files),
    }


def not_read(files: StoreFiles) -> list[str]:
    """Parts of the store that hold messages or configuration and are not read yet, in words. UnreadableError."""
    found: list[str] = []
    problem = files.checkpoint_problem()
    if problem is not None:
        found.append(f"checkpoint: {problem}")
    copies = unread_copies(files.layout)
    for kind, what in (("compaction", "the compaction log"), ("tiered", "tiered storage")):
        of_kind = [copy for copy in copies if copy.kind == kind]
        if of_kind:
            messages = counted(sum(copy.messages for copy in of_kind), "message")
            topics = counted(len({copy.topic for copy in of_kind}), "topic")
            found.append(f"{what} holds {messages} of {topics}")
    for database, names in databases(files.layout.config).items():
        if is_readable_form(database):
            continue
        found.append(f"{database} (a RocksDB) is used instead of {', '.join(names)}")
    return found


def _dledger_info(files: StoreFiles) -> _Row | None:
    """What the DLedger log says of itself; None for a store without one."""
    if files.dledger is None:
        return None
    from rmqctl.store.compare.replicas import member_of

    member = member_of(files)
    return {**member._asdict(), "uncommitted": member.uncommitted}


def _unfinished(files: StoreFiles) -> str | None:
    """Return the id of a change that was interrupted or is running; an error text if that is unknown."""
    try:
        return unfinished_change(files.layout)
    except RmqctlError as error:
        return str(error)


def _queues_info(files: StoreFiles) -> _Row:
    kind = "rocksdb" if has_rocksdb_queues(files.layout) else "files"
    try:
        queues = files.queues.all()
    except CorruptError as error:
        return {"kind": kind, "topics": None, "queues": None, "units": None, "problems": [str(error)]}
    minimum = files.log.min_offset
    return {
        "kind": kind,
        "topics": len({queue.topic for queue in queues}),
        "queues": len(queues),
        # what can be read: slots of messages that are gone with old commitlog files are left out
        "units": sum(_count_units(queue, minimum) for queue in queues),
        "problems": [
            f"{problem.path.relative_to(files.root)}: {problem.detail}"
            for queue in queues
            for problem in queue.files.problems
        ],
    }


def _count_units(queue: AnyConsumeQueue, commitlog_min_offset: int) -> int:
    minimum = queue.min_offset(commitlog_min_offset)
    if isinstance(queue, ConsumeQueue):
        return max(0, queue.max_offset - minimum)
    return sum(1 for _ in queue.units(minimum))


def queue_row(reader: StoreReader, queue: AnyConsumeQueue, on_arrays: bool) -> _Row:
    """One queue: `messages` counts units that point at something, `bytes` is the sum of their sizes, both exact.

    The times are those of its first and last readable message; None without one.
    """
    minimum = queue.min_offset(reader.files.log.min_offset)
    numbers = count_queue(queue, minimum, reader.unit_store_time, on_arrays)
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "kind": queue.kind,
        "min_offset": minimum,
        "max_offset": queue.max_offset,
        "messages": numbers.messages,
        "bytes": numbers.bytes,
        "first_store_timestamp": numbers.first_store_timestamp,
        "last_store_timestamp": numbers.last_store_timestamp,
        "problems": [f"{problem.path.name}: {problem.detail}" for problem in queue.files.problems],
    }


def queue_rows(reader: StoreReader, topic: str | None = None, queue_id: int | None = None) -> Iterator[_Row]:
    """All queues, or those of a topic. UnsupportedError for RocksDB queues, NotFoundError for an unknown topic."""
    queues = reader.queues(topic, queue_id)
    on_arrays = arrays_pay(queues, reader.files.log.min_offset)
    for queue in queues:
        yield queue_row(reader, queue, on_arrays)


def topic_rows(reader: StoreReader, topic: str | None = None) -> Iterator[_Row]:
    """Topics with the sums over their queues."""
    rows: dict[str, _Row] = {}
    for queue in queue_rows(reader, topic):
        row = rows.setdefault(queue["topic"], _new_topic(queue["topic"], "consumequeue"))
        row["queues"] += 1
        row["messages"] += queue["messages"]
        row["bytes"] += queue["bytes"]
        _widen(row, queue["first_store_timestamp"], queue["last_store_timestamp"])
    yield from rows.values()


def topic_rows_from_log(files: StoreFiles, topic: str | None = None, events: Events = Events()) -> Iterator[_Row]:
    """The same counted from the commitlog itself, but for removed topics: for stores whose queues are lost or cannot be
    read."""
    topics = log_numbers.count_topics(files.log, events)
    known = KnownNames.of(files)
    for name in sorted(topics):
        if topic in (None, name) and not known.is_removed(name):
            numbers = topics[name]
            row = _new_topic(name, "commitlog")
            row["queues"] = len(numbers.queue_ids)
            row["messages"], row["bytes"] = numbers.messages, numbers.bytes
            _widen(row, numbers.first_store_timestamp, numbers.last_store_timestamp)
            yield row


def _new_topic(topic: str, source: str) -> _Row:
    return {
        "topic": topic,
        "queues": 0,
        "messages": 0,
        "bytes": 0,
        "first_store_timestamp": None,
        "last_store_timestamp": None,
        "counted_from": source,
    }


def _widen(row: _Row, first: int | None, last: int | None) -> None:
    known = row["first_store_timestamp"], row["last_store_timestamp"]
    row["first_store_timestamp"] = min((time for time in (known[0], first) if time is not None), default=None)
    row["last_store_timestamp"] = max((time for time in (known[1], last) if time is not None), default=None)


def file_rows(files: StoreFiles) -> Iterator[_Row]:
    """Yield every file of the store, by kind, with its size and the space it takes on disk.

    `first_offset`: the start offset that a file's name says, in bytes of its queue; `last_offset` its end. Links are
    not followed; other than regular files are of kind unknown.
    """
    directories = [files.root, *(path for path in files.layout.commitlog if not path.is_relative_to(files.root))]
    for root in directories:
        for path in _files_below(root):
            row = _file_row(files, root, path)
            if row is not None:
                yield row


def _files_below(root: Path) -> Iterator[Path]:
    def failed(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return  # removed since it was listed
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=error.filename)

    if not exists(root):
        return
    for directory, names, entries in os.walk(root, onerror=failed):
        names.sort()
        for entry in sorted(entries):
            yield Path(directory, entry)


def _file_row(files: StoreFiles, root: Path, path: Path) -> _Row | None:
    """None for a file that was removed since it was listed."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    what = Recognised(FileKind.UNKNOWN, "place")
    detail: str | None = None
    if stat.S_ISREG(status.st_mode):
        try:
            what = recognise(path, commitlog=files.layout.commitlog)
        except RemovedError:
            return None
        except UnreadableError as error:
            detail = error.message
    else:
        detail = "not a regular file"
    first = int(path.name) if is_file_name(path.name) else None
    return {
        "kind": what.kind.value,
        "path": str(path.relative_to(root)) if root == files.root else str(path),
        "size": status.st_size,
        "on_disk_bytes": on_disk_bytes(status, path),
        "first_offset": first,
        "last_offset": None if first is None else first + status.st_size,
        "modified_timestamp": status.st_mtime_ns // 1_000_000,
        "readable": what.is_readable,
        "detail": detail or (None if what.is_readable else what.description),
    }


def has_queue_files(files: StoreFiles) -> bool:
    """Whether the store has consume queues that can be read: neither lost nor in a RocksDB."""
    try:
        return any(queue.files.files for queue in files.queues.all())
    except CorruptError:
        return False


# Find the files of a store that processes hold open or mapped. The space of one that is deleted is not free.

_DELETED = " (deleted)"


class HeldFile(NamedTuple):
    """A deleted file that a process holds. `bytes`: what it takes on the disk, or its mapped size where it is only
    mapped."""

    process: int
    file: str
    bytes: int


class FileInUse(NamedTuple):
    """A file of the store that a process has open or `mapped`. `command`: the name of the process; `bytes`: on disk."""

    process: int
    command: str
    file: str
    bytes: int
    mapped: bool


def held_files(layout: StoreLayout) -> list[HeldFile]:
    """Return the deleted files of the store's folders that processes hold, as far as this user may look into /proc."""
    roots = _roots(layout)
    return sorted(one for process in processes() for one in _held_by(process, roots))


def files_in_use(layout: StoreLayout) -> list[FileInUse]:
    """Return the files of the store's folders that other processes hold, as far as this user may look into /proc."""
    roots = _roots(layout)
    return sorted(one for process in processes() if is_another(process) for one in _used_by(process, roots))


def _roots(layout: StoreLayout) -> tuple[str, ...]:
    folders = (layout.root, *layout.commitlog, layout.consumequeue, layout.index)
    return tuple({os.path.realpath(folder) + os.sep for folder in folders})


def _held_by(process: str, roots: tuple[str, ...]) -> list[HeldFile]:
    held: dict[str, int] = {}
    # the process may be gone or another user's, or close a file meanwhile; what was found of it counts
    with contextlib.suppress(OSError):
        for line, target in mapped_files(process, roots):
            if target.endswith(_DELETED):
                begin, _, end = line.split(" ", 1)[0].partition("-")
                held[target] = held.get(target, 0) + int(end, 16) - int(begin, 16)
        for opened, target in opened_files(process, roots):
            if target.endswith(_DELETED):
                held[target] = os.stat(opened).st_blocks * 512
    return [HeldFile(int(process), target.removesuffix(_DELETED), size) for target, size in held.items()]


def _used_by(process: str, roots: tuple[str, ...]) -> list[FileInUse]:
    used: dict[str, bool] = {}
    # as above
    with contextlib.suppress(OSError):
        used |= {target: True for _, target in mapped_files(process, roots)}
        for _, target in opened_files(process, roots):
            used.setdefault(target, False)
    found: list[FileInUse] = []
    for target, is_mapped in used.items():
        with contextlib.suppress(OSError):  # deleted, or removed meanwhile
            found.append(FileInUse(int(process), _command(process), target, os.stat(target).st_blocks * 512, is_mapped))
    return found


def _command(process: str) -> str:
    """Return the name of a process; "" where it is gone."""
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as name:
            return name.read().rstrip("\n")
    except OSError:
        return ""


# What takes up the room of a store: its topics by size, and its log, queues, index and the rest on the disk.

LOG, QUEUES, INDEX, REST = "commitlog", "consumequeue", "index", "rest"


@dataclass(slots=True)
class TopicUsage:
    """`bytes`: of its messages in the log; `share`: of those of all topics, 0 to 1. The queue files' sizes are apparent
    and on disk."""

    topic: str
    messages: int = 0
    bytes: int = 0
    share: float = 0.0
    queue_files: int = 0
    queue_bytes: int = 0
    queue_on_disk_bytes: int = 0


@dataclass(slots=True)
class PartUsage:
    """Files of a part of the store: `bytes` as their sizes say, `on_disk_bytes` without the holes of sparse files."""

    part: str
    files: int = 0
    bytes: int = 0
    on_disk_bytes: int = 0


@dataclass(slots=True)
class StoreUsage:
    """`counted_from`: commitlog or consumequeue. `damaged_bytes`: of the log, of no topic; None where it was not read.

    `held`: deleted files that processes still hold, which are not in `total`; `in_use`: the others that they hold.
    `map`: what each stretch of the log holds, None where it was not read.
    """

    _repr_html_ = as_html

    path: str
    counted_from: str
    messages: int = 0
    message_bytes: int = 0
    damaged_bytes: int | None = None
    topics: list[TopicUsage] = field(default_factory=list)
    parts: list[PartUsage] = field(default_factory=list)
    total: PartUsage = field(default_factory=lambda: PartUsage("total"))
    held: list[HeldFile] = field(default_factory=list)
    in_use: list[FileInUse] = field(default_factory=list)
    map: LogCells | None = None

    def row(self) -> _Row:
        """Return it as an object of `rmqctl du --map --json`."""
        held, in_use = [one._asdict() for one in self.held], [one._asdict() for one in self.in_use]
        return asdict(self) | {"held": held, "in_use": in_use, "map": None if self.map is None else self.map.row()}


def disk_usage(reader: StoreReader, *, quick: bool = False, behind: TopicFilter | None = None) -> StoreUsage:
    """Count the messages of each topic by a walk over the log, or `quick` by the units of the queues, and the files.

    Units say how large their messages are; a message in several queues counts in each of them then, and one that no
    queue has in none: queues that end before the log or lack files are reported as damage, those of the topics `behind`
    if not of all. UnsupportedError for `quick` where queues are in a RocksDB; UnreadableError.
    """
    layout = reader.files.layout
    usage = StoreUsage(str(layout.root), QUEUES if quick else LOG)
    topics: dict[str, TopicUsage] = {}
    missing = queues_behind(reader.files, behind or TopicFilter()) if quick else [reader.files.lost_log()]
    for error in filter(None, missing):
        reader.events.damaged(error)
    if quick:
        _count_queues(reader, topics)
    else:
        usage.map = new_map(reader.files)
        for name, numbers in count_topics(reader.files.log, reader.events, usage.map.add).items():
            topics[name] = TopicUsage(name, numbers.messages, numbers.bytes)
        usage.damaged_bytes = usage.map.damaged
    _count_files(reader, usage, topics)
    usage.held, usage.in_use = held_files(layout), files_in_use(layout)
    usage.messages = sum(topic.messages for topic in topics.values())
    usage.message_bytes = sum(topic.bytes for topic in topics.values())
    for topic in topics.values():
        topic.share = topic.bytes / usage.message_bytes if usage.message_bytes else 0.0
    usage.topics = sorted(topics.values(), key=lambda topic: (-topic.bytes, -topic.queue_on_disk_bytes, topic.topic))
    return usage


def _count_queues(reader: StoreReader, topics: dict[str, TopicUsage]) -> None:
    minimum = reader.files.log.min_offset
    queues = reader.queues()
    on_arrays = arrays_pay(queues, minimum)
    for queue in queues:
        numbers = count_queue(queue, queue.min_offset(minimum), lambda _: 0, on_arrays)
        topic = topics.setdefault(queue.topic, TopicUsage(queue.topic))
        topic.messages += numbers.messages
        topic.bytes += numbers.bytes


def _count_files(reader: StoreReader, usage: StoreUsage, topics: dict[str, TopicUsage]) -> None:
    layout = reader.files.layout
    log, queues, index, rest = (PartUsage(part) for part in (LOG, QUEUES, INDEX, REST))
    of_queues = (layout.consumequeue, layout.batchconsumequeue, layout.consumequeue_ext)
    for folder in reader.files.log.directories:
        for path, status in _usage_files_below(folder):
            _add(log, path, status)
    for folder in of_queues:
        for path, status in _usage_files_below(folder):
            _add(queues, path, status)
            below = path.removeprefix(f"{folder}{os.sep}").split(os.sep)
            # TOPIC/QUEUE/FILE; a RocksDB has none of these
            if len(below) == 3:
                topic = topics.setdefault(below[0], TopicUsage(below[0]))
                topic.queue_files += 1
                topic.queue_bytes += status.st_size
                topic.queue_on_disk_bytes += on_disk_bytes(status, path)
    for path, status in _usage_files_below(layout.index):
        _add(index, path, status)
    counted = {*map(os.path.realpath, (*reader.files.log.directories, *of_queues, layout.index))}
    for path, status in _usage_files_below(layout.root, lambda below: os.path.realpath(below) not in counted):
        _add(rest, path, status)
    usage.parts = [log, queues, index, rest]
    for part in usage.parts:
        usage.total.files += part.files
        usage.total.bytes += part.bytes
        usage.total.on_disk_bytes += part.on_disk_bytes


def _add(part: PartUsage, path: str, status: os.stat_result) -> None:
    part.files += 1
    part.bytes += status.st_size
    part.on_disk_bytes += on_disk_bytes(status, path)


def _usage_files_below(
    root: Path, is_wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files with their sizes; a file or folder that is removed meanwhile is left out."""
    waiting = [os.fspath(root)]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as listed:
                entries = list(listed)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnreadableError(f"cannot be listed: {error.strerror}", file=directory) from error
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and is_wanted(entry.path):
                    waiting.append(entry.path)
                elif stat.S_ISREG(status.st_mode):
                    yield entry.path, status


# The RocksDB databases of a store: what each is for, how large it is, and how far it has come.

_UNUSED = "nothing: a broker makes it in every store"


def databases_info(files: StoreFiles) -> list[dict[str, Any]]:
    """Return a row for each database: `folder` in the store, `tables` and `bytes` of these, `log_bytes` of what no
    table has yet, and in words what it `holds`. UnreadableError."""
    of_config = databases(files.layout.config)
    found = [folder for folder in files.layout.rocksdb if is_database(folder)] + list(of_config)
    found += account_databases(files.layout.config)
    return [_row(files, folder, of_config.get(folder, [])) for folder in found]


def _row(files: StoreFiles, folder: Path, tables: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "folder": str(folder.relative_to(files.root)) if folder.is_relative_to(files.root) else str(folder),
        "tables": None,
        "bytes": None,
        "log_bytes": None,
    }
    try:
        database = Database(folder, files.descriptors)
        row |= {
            "tables": len(database.tables()),
            "bytes": sum(table.size for table in database.tables()),
            "log_bytes": sum(status.st_size for path in database.logs() if (status := status_of(path)) is not None),
        }
        row["holds"] = "; ".join(_holds(files, database, tables)) or _UNUSED
    except CorruptError as error:
        row["holds"] = f"damaged: {error}"
    return row


def _holds(files: StoreFiles, database: Database, tables: list[str]) -> Iterator[str]:
    layout, folder = files.layout, database.folder
    if folder in (layout.consumequeue, layout.consumequeue_rocksdb):
        queues = RocksdbQueues(folder, None)
        reached = queues.dispatched_to()
        yield f"{counted(len(queues.ends()), 'queue')}, dispatched up to offset {reached}"
    elif folder == layout.message_storage:
        storage = files.message_storage
        if storage is None:
            return
        reached_to = storage.indexed_to()
        if reached_to is not None:
            yield f"the key index up to offset {reached_to}"
        if storage.scanned_to() is not None:
            waiting = sum(1 for _ in storage.timers(storage.delivered_to() or 0))
            yield f"the timer, in which {counted(waiting, 'message')} wait{'s' if waiting == 1 else ''}"
        halves = sum(1 for _ in storage.transactions())
        if halves:
            yield f"{counted(halves, 'half message')} without an end"
    elif is_secret_folder(folder):
        count = sum(1 for _ in database.scan("default"))
        yield counted(count, "user" if folder.name == USERS else "ACL")
    elif tables:
        yield f"the tables of {', '.join(tables)}" + (
            "" if is_readable_form(folder) else ", in a form that is not read"
        )
    else:
        yield "records of POP"
