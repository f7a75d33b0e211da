"""What else than the log, queues and index stops a start: the lock, the timer's files, permissions."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError, counted, refuse_exhausted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_database import database_of
from rmqctl.store.config.config_files import (
    DAMAGED,
    GOOD,
    MISSING,
    MODES,
    OWN_TABLES,
    ConfigPair,
    FoundFile,
    backup_of,
    look_at_pair,
    surely_gone,
)
from rmqctl.store.config.config_tables import misnamed_topics, missing_table
from rmqctl.store.config.epoch_file import EPOCH_FILE, IDENTITY_FILE, read_epochs
from rmqctl.store.config.releases import RELEASES, Release
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.files.reading import exists, has_entries, is_directory, is_file, is_link, is_there, status_of
from rmqctl.store.predict.broker_log import LogPlace, duplicate_info, has_duplicate_info, judge, load_files
from rmqctl.store.predict.rules import CONFIRMED_OFFSET, not_predicted
from rmqctl.store.timer.wheel import CHECKPOINT_FILE, WHEEL_FILE, log_file_size, wheel_files

# 7 days of one-second slots, twice, of 32 bytes each (TimerWheel)
_WHEEL_SIZE = 7 * 86_400 * 2 * 32
_READ, _WRITE, _LIST = 4, 2, 1
_INVALID = "java.io.IOException: Invalid argument"


def refused_before_loading(layout: StoreLayout) -> str | None:
    """What stops the store before it is loaded (DefaultMessageStore's constructor), or keeps it from ever writing a
    queue, which ends in a broker that takes no message (asked 4.9.7, 5.3.3, 5.5.0); None for nothing."""
    error = not_opened(layout.lock)
    if error is None and exists(layout.consumequeue) and not is_directory(layout.consumequeue):
        return f"[BUG]consume queue can not write: {layout.consumequeue} is no folder, and no message is taken any more"
    return error


def not_opened(path: Path) -> str | None:
    """Return Java's error for a file that a start opens for writing, or makes; None where that works."""
    if is_directory(path):
        return f"java.io.FileNotFoundException: {path} (Is a directory)"
    if _is_loop(path):
        return f"java.io.FileNotFoundException: {path} (Too many levels of symbolic links)"
    if is_link(path) and not exists(path) and not is_directory(Path(os.path.realpath(path)).parent):
        return f"java.io.FileNotFoundException: {path} (No such file or directory)"
    if _is_kind(path, stat.S_ISSOCK):
        return f"java.io.FileNotFoundException: {path} (No such device or address)"
    return None


def _is_loop(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def not_mapped(path: Path) -> str | None:
    """Return Java's error for a file that a start opens, then maps, lengthens or flushes; None where that works. A fifo
    opens, and refuses the rest."""
    return not_opened(path) or (_INVALID if _is_kind(path, stat.S_ISFIFO) else None)


def refused_lock(layout: StoreLayout) -> str | None:
    """What stops the start once the lock is taken, which is then written and flushed (DefaultMessageStore#start)."""
    return _INVALID if _is_kind(layout.lock, stat.S_ISFIFO) else None


def refused_abort(layout: StoreLayout, release: Release) -> str | None:
    """What stops a store that has started, when it makes its abort file (DefaultMessageStore#createTempFile).

    4.9.8 takes anything of that name for the file; 5.x reads it and writes its process id there.
    """
    if not release.writes_abort:
        return None
    if _is_kind(layout.abort, stat.S_ISFIFO):
        return f"none is logged: the broker waits without end for a process that writes into the fifo {layout.abort}"
    return not_opened(layout.abort)


def _is_kind(path: Path, kind: Callable[[int], bool]) -> bool:
    status = status_of(path)
    return status is not None and kind(status.st_mode)


def refused_by_timer(layout: StoreLayout, config: StoreConfig, release: Release) -> str | None:
    """What stops the timer, which 5.x loads after the store; None for nothing."""
    if not release.knows_batches or not config.timer_wheel_enable:
        return None
    reads_snapshots = config.timer_wheel_snapshot_flush if release.reads_wheel_snapshots else False
    wheel = next((one.path for one in wheel_files(layout, reads_snapshots)), layout.root / WHEEL_FILE)
    error = not_mapped(layout.config / CHECKPOINT_FILE) or not_mapped(wheel)
    if error is not None:
        return error
    status = status_of(wheel)
    size = 0 if status is None else status.st_size
    if size not in (0, _WHEEL_SIZE):
        return f"java.lang.RuntimeException: Timer wheel length:{size} != expected:{_WHEEL_SIZE}"
    return load_files([layout.root / "timerlog"], log_file_size(layout, config), release).error


_Entry = Path | os.DirEntry[str]


class Owner(NamedTuple):
    """Who will run the broker, as far as is known: the owner of the store's folder."""

    user: int
    group: int

    def may(self, path: _Entry, wanted: int) -> bool:
        """Whether they may use an existing `path` so; true where that cannot be known."""
        try:
            status = path.stat()
        except OSError:
            return True
        if self.user == 0:
            return True
        shift = 6 if status.st_uid == self.user else 3 if status.st_gid == self.group else 0
        return stat.S_IMODE(status.st_mode) >> shift & wanted == wanted


def permission_problems(layout: StoreLayout) -> tuple[str | None, list[str]]:
    """What stops the start for want of permissions, None for nothing; and what goes wrong later."""
    try:
        status = layout.root.stat()
    except OSError:
        return None, []
    owner = Owner(status.st_uid, status.st_gid)
    if owner.user == 0:
        return None, []
    error: str | None = None
    denied: list[str] = []
    for entry, is_needed in _mapped(layout):
        if not owner.may(entry, _READ | _WRITE):
            path = os.fspath(entry)
            denied.append(path)
            if is_needed and error is None:
                error = f"java.io.FileNotFoundException: {path} (Permission denied)"
    warnings = []
    if denied:
        more = f" and {counted(len(denied) - 1, 'more file')}" if len(denied) > 1 else ""
        warnings.append(f"user {owner.user}, who owns the store, cannot read and write {denied[0]}{more}")
    for directory in _folders(layout):
        if not owner.may(directory, _READ | _WRITE | _LIST):
            does = "cannot list it: a broker takes it for empty" if not owner.may(directory, _READ | _LIST) else ""
            does = (
                does or "cannot make files in it: a broker stops when it needs the next one, or does not keep offsets"
            )
            warnings.append(f"{os.fspath(directory)}: user {owner.user}, who owns the store, {does}")
    return error, warnings


def _mapped(layout: StoreLayout) -> Iterator[tuple[_Entry, bool]]:
    """Files that a start opens for reading and writing, and whether it ends where it cannot."""
    for path in (layout.lock, layout.checkpoint, layout.root / "timerwheel", layout.config / CHECKPOINT_FILE):
        yield path, True
    for directory in layout.commitlog:
        for entry in _entries(directory):
            yield entry, True
    for root in (layout.consumequeue, layout.batchconsumequeue, layout.consumequeue_ext):
        for topic in _entries(root):
            for queue in _entries(topic):
                for entry in _entries(queue):
                    yield entry, True
    for entry in _entries(layout.index):
        yield entry, True
    for entry in _entries(layout.config):
        yield entry, False


def _folders(layout: StoreLayout) -> Iterator[_Entry]:
    yield layout.root
    yield from (directory for directory in layout.commitlog)
    yield from (layout.consumequeue, layout.index, layout.config)
    for topic in _entries(layout.consumequeue):
        yield topic
        yield from (queue for queue in _entries(topic) if is_directory(queue))


def _entries(directory: _Entry) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        refuse_exhausted(error, directory)
        return []


# What config files and their backups do to the next start, in the order in which a broker loads them.

_CONSUMER, _LMQ, _DELAY = "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json"
_TOPICS, _SHOWN = "topics.json", 3
_EMPTY_MEANS = {
    "topics.json": "no topic is configured: clients find none of them until they are created again",
    "topicQueueMapping.json": "static topics have no mapping",
    _CONSUMER: "no group has an offset: each starts again at the first or last message, as its clients say",
    _LMQ: "no group has an offset: each starts again at the first or last message, as its clients say",
    "subscriptionGroup.json": "no group is configured: retries, broadcasting and the like fall back to defaults",
    "consumerFilter.json": "SQL filters are unknown until their consumers subscribe again",
    "consumerOrderInfo.json": "orderly POP consumers may get messages twice",
    MODES: "groups that were set to POP, or to pull, are assigned queues as defaultMessageRequestMode says",
    _DELAY: "all delayed messages that are still in their queues are delivered again",
}


class ConfigStep(NamedTuple):
    """What a start makes of one config file. `source`: file, backup or nothing; None where the broker ends there.

    `is_harmful`: something that was written is not loaded. `moves`: offsets that go back, as far as the damaged file
    can still be read: group, topic, queue id or None, from, to.
    """

    file: str
    source: str | None
    is_harmful: bool
    detail: str
    moves: tuple[dict[str, Any], ...] = ()

    def row(self) -> dict[str, Any]:
        """As one object with stable names."""
        return {**self._asdict(), "moves": list(self.moves)}


@dataclass(slots=True)
class ConfigStart:
    """The loads before the store, and that of the delay offsets after it."""

    version: str
    steps: list[ConfigStep] = field(default_factory=list)
    delay_offsets: dict[int, int] | None = None
    error: str | None = None
    """Why the broker ends before it looks at the store."""
    error_after: str | None = None
    """Why it ends after that."""
    error_registering: str | None = None
    """Why it ends once the store has started."""


def start_of_config(layout: StoreLayout, config: StoreConfig, version: str) -> ConfigStart:
    """What the start of `version` makes of the config folder. Nothing is changed."""
    found = ConfigStart(version)
    for name in RELEASES[version].tables:
        if database_of(layout.config, name) is not None:
            continue  # it is not loaded from the file
        wanted = _LMQ if name == _CONSUMER and config.enable_lmq else name
        pair = look_at_pair(layout.config / wanted)
        waits = _waits_for(pair, version)
        if waits is None:
            found.steps += _steps(pair, version)
        if waits is not None or pair.source_for(version) is None:
            found.error = waits or _error(pair)
            return found
    nameless, misnamed = _misnamed(layout, version)
    found.steps += [*misnamed, *_gone(layout, is_slave=config.is_slave), *_in_the_way(layout, config, version)]
    found.error_after = next(filter(None, _waits_for_metrics(layout, config, version)), None)
    if not RELEASES[version].is_of_4:
        modes = look_at_pair(layout.config / MODES)
        found.error_after = found.error_after or _waits_for(modes, version)
        for step in _steps(modes, version) if not _waits_for(modes, version) else ():
            # the broker goes on without them (QueryAssignmentProcessor)
            said = f"{MODES} is {_state(modes.file)}, its backup is {_state(modes.backup)}: {_EMPTY_MEANS[MODES]}"
            found.steps.append(step if step.source else step._replace(source="nothing", detail=said))
    pair = look_at_pair(layout.config / _DELAY)
    waits = _waits_for(pair, version)
    if waits is None:
        found.steps += _steps(pair, version)
    source = pair.source_for(version)
    if waits is not None or source is None:
        found.error_after = found.error_after or waits or _error(pair)
    else:
        found.delay_offsets = source.table() if source.state == GOOD else None
    found.error_registering = nameless
    return found


def _misnamed(layout: StoreLayout, version: str) -> tuple[str | None, list[ConfigStep]]:
    """Return the error of a start that a topic without topicName ends, and what clients do not find."""
    source = look_at_pair(layout.config / _TOPICS).source_for(version)
    if source is None or database_of(layout.config, _TOPICS) is not None:
        return None, []
    found = dict(misnamed_topics(source.table()))
    nameless = next((topic for topic, named in found.items() if named is None), None)
    if nameless is not None and not RELEASES[version].is_of_4:
        return f"java.lang.NullPointerException (registerBrokerAll): the entry of {nameless} has no topicName", []
    names = [f"{topic} ({named or 'no name'})" for topic, named in found.items()]
    more = f" and {counted(len(names) - _SHOWN, 'more topic')}" if len(names) > _SHOWN else ""
    text = f"{_TOPICS} has entries with other names: clients find no route to {', '.join(names[:_SHOWN])}{more}"
    return None, [ConfigStep(_TOPICS, "file", True, text)] if names else []


def _in_the_way(layout: StoreLayout, config: StoreConfig, version: str) -> Iterator[ConfigStep]:
    """Yield directories and the like in places of files that a start does not need, and the broker writes later."""
    for table in (*RELEASES[version].tables, _DELAY):
        name = _LMQ if table == _CONSUMER and config.enable_lmq else table
        backup = backup_of(layout.config / name)
        if is_there(backup) and not is_file(backup):
            text = f"{backup.name} is not a regular file: the broker loads {name} and cannot save it any more"
            yield ConfigStep(backup.name, "file", True, text)
    if RELEASES[version].is_of_4:
        return
    for path, text in (
        (layout.config / "timermetrics", "the timer's counts are those of the backup, and are not saved any more"),
        (layout.config / "transactionMetrics", "counts of half messages are those of the backup, and are not saved"),
        (layout.root / EPOCH_FILE, "under a controller a broker takes the backup, or no epochs, and cannot save any"),
        (layout.root / IDENTITY_FILE, "under a controller a broker does not register"),
    ):
        for one, said in ((path, text), (backup_of(path), "the broker cannot save the file any more")):
            if is_there(one) and not is_file(one):
                yield ConfigStep(one.name, "nothing", True, f"{one.name} is not a regular file: {said}")


def _gone(layout: StoreLayout, *, is_slave: bool) -> Iterator[ConfigStep]:
    """Yield tables that a broker keeps from its first start on, where the others are there and one is not."""
    gone = surely_gone(layout.root, layout.config, is_slave=is_slave)
    for name in gone:
        text = f"{name} and its backup are missing, though a broker saved it: {_EMPTY_MEANS[name]}"
        yield ConfigStep(name, "nothing", True, text)
    absent = [name for name in OWN_TABLES if not _is_kept(layout, name)]
    if len(absent) < len(OWN_TABLES) - 1:
        for name in (one for one in absent if one not in gone):
            is_lost = name == "topics.json" and has_entries(layout.consumequeue)
            text = f"{name} and its backup are missing, beside others: {_EMPTY_MEANS[name]}"
            yield ConfigStep(name, "nothing", is_lost, text)


def _is_kept(layout: StoreLayout, name: str) -> bool:
    """Whether the table is anywhere: in the file, its backup, the file of light queues, or a RocksDB."""
    names = (name, _LMQ) if name == _CONSUMER else (name,)
    paths = [path for one in names for path in (layout.config / one, backup_of(layout.config / one))]
    return database_of(layout.config, name) is not None or any(is_there(path) for path in paths)


def _waits_for_metrics(layout: StoreLayout, config: StoreConfig, version: str) -> Iterator[str | None]:
    if not RELEASES[version].is_of_4:
        for name in ("timermetrics", "transactionMetrics") if config.timer_wheel_enable else ("transactionMetrics",):
            yield _waits_for(look_at_pair(layout.config / name), version)


def _waits_for(pair: ConfigPair, version: str) -> str | None:
    """Return why a load never ends: it opens a fifo, and waits for a process that writes into it."""
    for one in pair:
        status = status_of(one.path)
        if status is not None and stat.S_ISFIFO(status.st_mode):
            return f"none is logged: the broker waits without end for a process that writes into the fifo {one.path}"
        if one.is_loaded_by(version):
            break
    return None


def _error(pair: ConfigPair) -> str:
    """In the broker's words, with the reason."""
    return (
        f"load {pair.backup.path} Failed: it is {_state(pair.backup)}, and {pair.file.path.name} is {_state(pair.file)}"
    )


def _state(found: FoundFile) -> str:
    return f"{found.state} ({found.detail})" if found.detail else found.state


def _steps(pair: ConfigPair, version: str) -> Iterator[ConfigStep]:
    """Nothing where the file itself is loaded as it should be, or was never there."""
    file, backup = pair
    name = file.path.name
    source = pair.source_for(version)
    was = f"{name} is {_state(file)}" if file.state != GOOD else f"{name} is not loaded ({_why(file, version)})"
    is_deleted = RELEASES[version].deletes_bad_tables and file.state != MISSING
    copy_first = f". {version} deletes config/{name}: copy it before the start" if is_deleted else ""
    if source is None:
        stops = f"{was}, its backup is {_state(backup)}: the broker does not start{copy_first}"
        yield ConfigStep(name, None, True, stops)
    elif source is file:
        if file.state != GOOD or _is_empty(file):
            yield ConfigStep(name, "nothing", True, f"{name} holds no table: {_EMPTY_MEANS[name]}")
    elif source.state == GOOD:
        moves = tuple(_moves(file, backup))
        deleted = ", after it has deleted the file" if is_deleted else ""
        said = [f"{was}: the broker takes the backup, which is older{deleted}", _said_of(moves, file)]
        yield ConfigStep(name, "backup", file.state != MISSING, "; ".join(filter(None, said)), moves)
    elif file.state != MISSING or backup.state != MISSING:
        lost = f"{was}, its backup is {backup.state}: {_EMPTY_MEANS[name]}{copy_first}"
        yield ConfigStep(name, "nothing", True, lost)


def _is_empty(found: FoundFile) -> bool:
    """Whether what is loaded has no table although it is the whole file: null, a list without items, or an object
    without it."""
    name, value = found.path.name, found.value
    return name in _EMPTY_MEANS and (not isinstance(value, dict) or missing_table(name, value) is not None)


def _why(file: FoundFile, version: str) -> str:
    loaded = file.loaded
    if loaded is None:
        return version
    return f"{version} does not take {', '.join(loaded.forms) or 'a file that holds no object'}"


def _said_of(moves: tuple[dict[str, Any], ...], file: FoundFile) -> str:
    if moves:
        groups = {move["group"] for move in moves} - {None}
        whose = f" of {counted(len(groups), 'group')}" if groups else ""
        most = max(move["from"] - (move["to"] or 0) for move in moves)
        return f"{counted(len(moves), 'offset')}{whose} go back, by up to {most}"
    if file.state == DAMAGED and not file.table() and file.path.name in (_CONSUMER, _LMQ, _DELAY):
        return "how far offsets go back cannot be read any more"
    return ""


def _moves(file: FoundFile, backup: FoundFile) -> Iterator[dict[str, Any]]:
    """Offsets that were further in the file than in the backup."""
    name = file.path.name
    newer, older = file.table(), backup.table()
    if name == _DELAY:
        for level, offset in newer.items():
            if offset > older.get(level, 0):
                yield {"group": None, "topic": None, "queue_id": level - 1, "from": offset, "to": older.get(level)}
    elif name in (_CONSUMER, _LMQ):
        for key, queues in newer.items():
            topic, _, group = key.partition("@")
            before = older.get(key, {})
            for queue_id, offset in queues.items():
                if offset > before.get(queue_id, -1):
                    yield {
                        "group": group,
                        "topic": topic,
                        "queue_id": queue_id,
                        "from": offset,
                        "to": before.get(queue_id),
                    }


# Find where recovery of 5.x ends the log with duplicationEnable=true: at the first message without DUP_INFO.
#
# The check (CommitLog#checkMessageAndReturnSize, `checkDupInfo`) is one of recovery alone. Producers and brokers
# write no such property by themselves, so recovery takes no message at all: it cuts the log where it begins to read.

SETTING = "duplicationEnable"


def end_without_duplicates(
    log: MappedFileQueue, begin: LogPlace, release: Release, *, checks_crc: bool
) -> tuple[LogPlace, str]:
    """Return where the log ends for recovery, and why in the words of the broker.

    Raises: UnsupportedError where recovery takes a message: what it dispatches depends on the confirmed offset then.
    """
    place = begin
    while True:
        file = log.files[place.file]
        verdict = judge(file.read, place.position, file.committed_position, release, check_crc=checks_crc)
        if verdict.message is not None:
            info = duplicate_info(verdict.message)
            if not verdict.message.property_bytes or has_duplicate_info(verdict.message):
                raise not_predicted(SETTING, CONFIRMED_OFFSET)
            return place, f"DupInfo in properties check failed. dupInfo={'null' if info is None else info}"
        if not verdict.is_blank or place.file + 1 >= len(log.files):
            return place, verdict.why
        place = LogPlace(place.file + 1, 0)


# How much a start reads until its store is recovered, and an estimate of how long that takes, with its basis.

# CommitLog#checkMessageAndReturnSize over mapped files of small messages, one thread, log in memory (bench/)
_FAST_BYTES_PER_S = 500_000_000
# a hard disk or a network disk that delivers the log while it is read
_SLOW_BYTES_PER_S = 100_000_000
# opening and mapping: 200,000 files took 48 s, and 150 s in older versions (apache/rocketmq#5091)
_FAST_S_PER_FILE = 48 / 200_000
_SLOW_S_PER_FILE = 150 / 200_000
BASIS = (
    "estimate: the log at 500 MB/s (in memory) to 100 MB/s (slow disk), in one thread as RocketMQ reads it; 0.24 to "
    "0.75 ms for each file that is opened; JVM start, registration and timers not included"
)


class RecoveryWork(NamedTuple):
    """`log_bytes` of `log_files` are read from where the recovery begins to where the log ends for the broker;
    `queue_files` are opened before that. `seconds_least`, `seconds_most`: the estimated duration, by `basis`."""

    log_bytes: int
    log_files: int
    queue_files: int
    seconds_least: float
    seconds_most: float
    basis: str


def recovery_work(log_bytes: int, log_files: int, queue_files: int) -> RecoveryWork:
    """Return the work of a start with the time it takes."""
    opened = log_files + queue_files
    least = log_bytes / _FAST_BYTES_PER_S + opened * _FAST_S_PER_FILE
    most = log_bytes / _SLOW_BYTES_PER_S + opened * _SLOW_S_PER_FILE
    return RecoveryWork(log_bytes, log_files, queue_files, round(least, 3), round(most, 3), BASIS)


def said_of_first(begin: int, end_offset: int) -> str:
    """Return what is to be said of the first start with enableDLegerCommitLog=true, with which a DLedger log begins at
    `begin` (DLedgerCommitLog#setRecoverPosition)."""
    return (
        "this is the first start with enableDLegerCommitLog=true: the commitlog ends with a blank frame at "
        f"{end_offset}, and a DLedger log begins at {begin}"
    )


def said_beyond(begin: int, max_offset: int) -> str:
    """Return what to say where queues lead past the end of the log."""
    return (
        f"the queues say that the log reaches {begin}, it ends at {max_offset}: messages that are put until then "
        "reach no queue"
    )


def epoch_problem(layout: StoreLayout) -> list[str]:
    """Return what a broker under a controller makes of an epoch file that it cannot load (EpochFileCache)."""
    path = layout.root / EPOCH_FILE
    if not is_file(path):
        return []  # a directory is a step of the configuration
    try:
        read_epochs(path)
    except (CorruptError, UnreadableError) as error:
        return [
            f"{EPOCH_FILE}: {error.message}: under a controller a broker takes its backup, or starts without epochs"
        ]
    return []
