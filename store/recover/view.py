"""The store as a recovery would leave it, in a temporary folder: links to the store, and what recovery would write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rmqctl.formats.errors import (
    CorruptError,
    DiskFullError,
    RefusedError,
    RmqctlError,
    StoreInUseError,
    forget_place,
    stand_for,
)
from rmqctl.formats.message import StoredMessage
from rmqctl.store.answers.undispatched import lacking_queues, queues_behind
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files import io
from rmqctl.store.files.layout import Ownership, StoreLayout, is_safe_topic
from rmqctl.store.files.lock import is_in_use, refuse_server
from rmqctl.store.files.outputs import Sharing, copy_sparsely, temporary_folder
from rmqctl.store.files.reading import is_directory, is_link, named
from rmqctl.store.journal.journal import Journal, PlannedChange, keep_interrupted_sizes
from rmqctl.store.journal.plan import Install, MoveAway, Plan
from rmqctl.store.log.survey import look_at_tail
from rmqctl.store.log.walk import Damage, message_if_any, walk
from rmqctl.store.options import Events
from rmqctl.store.queues.dispatch import index_keys
from rmqctl.store.queues.queue_table import has_rocksdb_queues, leads_to_its_message, rocksdb_folder
from rmqctl.store.read.filter import TopicFilter
from rmqctl.store.recover.entries import goal_of_entries
from rmqctl.store.recover.recover import Recovery
from rmqctl.store.recover.report import ALL_PARTS, Goal, Part, RecoverReport
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.store.queues.queue_table import QueueTable
    from rmqctl.store.queues.rocksdb_queues import RocksdbQueues

_LOG = "commitlog"
_PREFIX = "rmqctl-view-"
_TAIL = 64 * 1024
_OWN = Ownership(os.geteuid(), os.getegid(), 0o600, 0o700)
_HINT = "a broker that runs completes its queues by itself; stop it, or leave out --as-recovered"


class RecoveredView(NamedTuple):
    """A store in the folder `root`, to be opened with `config`. `report`: what the recovery would do to the real one;
    `damaged` in it are the spans inside the log that are passed over, where a recovery may refuse."""

    root: Path
    config: StoreConfig
    report: RecoverReport

    def broker_conf(self, properties: Mapping[str, str]) -> bytes:
        """Return the text of a broker.conf for the view, made of the one for the store."""
        places = {"storepathrootdir", "storepathcommitlog", "readonlycommitlogstorepaths"}
        kept = {key: value for key, value in properties.items() if key.lower() not in places}
        lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in kept.items()]
        return "\n".join(lines).encode("utf-8")


@contextmanager
def recovered_view(files: StoreFiles, events: Events = Events()) -> Iterator[RecoveredView]:
    """Yield the store of `files` as `recover` would leave it. Not a byte of the store changes.

    The folder below TMPDIR holds links to what stays, copies of the files that change (of the commitlog at most the
    last one, after a torn tail) and the new ones. Messages after damage keep their place in their queues, as after
    `rebuild`. It is removed at the end, also after a kill. Errors name the files of the store.

    Queues in a RocksDB are in files there. Raises: StoreInUseError; RefusedError where recovery refuses for another
    reason than damage; UnreadableError; DiskFullError.
    """
    refuse_server(files.root)
    with temporary_folder(_PREFIX) as folder:
        root = Path(os.path.realpath(folder)) / (files.root.resolve().name or "store")
        try:
            with StoreFiles(files.root.absolute(), files.config) as store:
                table = None if store.queues.of_files or not has_rocksdb_queues(store.layout) else store.queues
                if table is not None:
                    store.use_queue_files()
                report = _make(store, root, events)
                if table is not None:
                    _leave_out_deleted(table, root, _config(files.config), events)
        except DiskFullError as error:
            error.hint = "name a folder with more space in TMPDIR"
            raise
        stand_for(str(root), str(files.root))
        try:
            yield RecoveredView(root, _config(files.config), report)
        except RmqctlError as error:
            error.keep_addresses()
            raise
        finally:
            forget_place(str(root))


def looks_unrecovered(files: StoreFiles) -> bool:
    """Return whether a store at rest shows at a glance that its queues or index lag, are lost or torn: by `abort`, the
    ends of the log, and the sizes of files, or that a RocksDB of queues is damaged where they begin or end. What is
    wrong elsewhere shows only where the whole log is read. CorruptError, UnreadableError."""
    if is_in_use(files.layout) or not files.log.files:
        return False
    if has_rocksdb_queues(files.layout):
        try:
            files.queues.all()
            return _end_lags(files, files.queues.database())
        except CorruptError:
            return True
    problems = [files.log.problems, files.index.problems, *(queue.files.problems for queue in files.queues.all())]
    if files.has_abort() or any(problems) or queues_behind(files, TopicFilter()):
        return True
    return _end_lags(files) or _leads_elsewhere(files)


def _end_lags(files: StoreFiles, database: RocksdbQueues | None = None) -> bool:
    """Return whether a message among the last ones is damaged, or lacks a key in the index or its unit in a queue of
    `database`. Those before the end of what was dispatched lack none: their topic may have been deleted."""
    levels = files.config.delay_levels()
    dispatched = database.dispatched_to() if database is not None else 0
    indexed = max((file.header.end_physical_offset for file in files.index.files), default=-1)
    for record in walk(files.log, look_at_tail(files.log, _TAIL).begin):
        if isinstance(record, Damage):
            return True
        if not isinstance(record, StoredMessage) or not is_safe_topic(record.topic):
            continue
        if files.makes_index_files and record.physical_offset > indexed and index_keys(record):
            return True
        if database is not None and record.physical_offset >= dispatched and lacking_queues(files, record, levels):
            return True
    return False


def _leads_elsewhere(files: StoreFiles) -> bool:
    """Return whether the last unit of a queue leads to no message of its queue, though the log still has its place."""

    def read(physical_offset: int) -> StoredMessage | None:
        return message_if_any(files.log, physical_offset)

    for queue in files.queues.all():
        unit = queue.unit(queue.max_offset - 1) if queue.max_offset else None
        if unit is not None and unit.is_written and unit.physical_offset < files.log.min_offset:
            continue
        if unit is not None and not leads_to_its_message(queue, unit, read):
            return True
    return False


def _leave_out_deleted(table: QueueTable, root: Path, config: StoreConfig, events: Events) -> None:
    """Remove from the view the queues of deleted topics: their messages were dispatched, and have no units in the
    RocksDB of `table`."""
    try:
        database = table.database()
        assert database is not None
        known, dispatched = {end.topic for end in database.ends()}, database.dispatched_to()
    except CorruptError as error:
        events.noted(f"topics that were deleted are shown, too: the RocksDB that would tell them is damaged: {error}")
        return
    last: dict[Path, int] = {}
    with StoreFiles(root, config) as view:
        for queue in view.queues.all():
            unit = queue.unit(queue.max_offset - 1) if queue.max_offset and queue.topic not in known else None
            if unit is not None:
                folder = queue.directory.parent
                last[folder] = max(last.get(folder, 0), unit.physical_offset)
    for folder in (folder for folder, offset in last.items() if offset < dispatched):
        if not Path(os.path.realpath(folder.parent)).is_relative_to(root):
            raise AssertionError(f"{folder} is not in the view")
        if is_link(folder):
            io.remove(folder)
        else:
            io.remove_tree(folder)


def _config(config: StoreConfig) -> StoreConfig:
    """Return the settings of the view, where all of the log is in one folder below the root."""
    return config._replace(store_path_commit_log=None, read_only_commit_log_store_paths=None)


def _make(store: StoreFiles, root: Path, events: Events) -> RecoverReport:
    """Plan the recovery of `store`, and carry it out below `root`."""
    _refuse_in_use(store)
    keep_interrupted_sizes(store)
    layout = StoreLayout(root, (root / _LOG,))
    try:
        goal = Goal(leave=True)
        if store.dledger is not None:
            goal = goal_of_entries(store, cut=False, full=False)._replace(leave=True, parts=ALL_PARTS)
        journal, plan, report = _planned(store, layout, goal, events)
    except RefusedError:
        # the files of the log cannot be put right without a decision: they are shown as they are
        goal = Goal(leave=True, parts=ALL_PARTS - {Part.LOG})
        journal, plan, report = _planned(store, layout, goal, events)
    _refuse_in_use(store)
    database = rocksdb_folder(store.layout) if store.queues.of_files else None
    _Mirror(store.layout, layout, plan, database).make()
    moved = _moved(store.layout, layout, plan)
    if moved:
        journal.apply(moved)
    else:
        journal.discard()
    return report


def _refuse_in_use(store: StoreFiles) -> None:
    if is_in_use(store.layout):
        raise StoreInUseError("the store is open for writing", file=store.root, hint=_HINT)


def _planned(store: StoreFiles, layout: StoreLayout, goal: Goal, events: Events) -> tuple[Journal, Plan, RecoverReport]:
    """Return the plan for `store`; what it writes is in the journal of the view."""
    journal = Journal(layout, "recover", keeps=False)
    with journal.planning(), named(store.root):
        recovery = Recovery(PlannedChange(store, journal), goal)
        report = recovery.plan(events)
    return journal, recovery.operations, report


def _place(path: Path, store: StoreLayout, view: StoreLayout) -> Path:
    """Return where a path of the store is in the view."""
    for directory in store.commitlog:
        if path.is_relative_to(directory):
            return view.commitlog[0] / path.relative_to(directory)
    return view.root / path.relative_to(store.root)


def _moved(store: StoreLayout, view: StoreLayout, plan: Plan) -> Plan:
    """Return the plan for the view. What it would move away is not in the view."""
    kept = [operation for operation in plan.operations if not isinstance(operation, MoveAway)]
    moved = Plan([replace(cast("Any", one), path=_place(one.path, store, view)) for one in kept])
    moved.times = {_place(path, store, view): time_ns for path, time_ns in plan.times.items()}
    for path in moved.paths():
        # the law: nothing is written through a link into the store
        if is_link(path) or not Path(os.path.realpath(path)).is_relative_to(view.root):
            raise AssertionError(f"{path} leads out of the view")
    return moved


class _Mirror:
    """The folders of a store made of links; a folder is made only where something in it changes."""

    def __init__(self, store: StoreLayout, view: StoreLayout, plan: Plan, database: Path | None) -> None:
        """`database`: a folder, which may have queue files too, whose own files are left out."""
        self._store = store
        self._view = view
        self._left_out = {store.abort, store.lock}
        if database is not None:
            self._left_out |= {path for path in database.iterdir() if not is_directory(path)}
            if database != store.consumequeue:
                self._left_out.add(database)
        self._left_out |= {one.path for one in plan.operations if isinstance(one, MoveAway | Install)}
        changed = set(plan.paths())
        self._copied = changed - self._left_out
        # queues of deleted topics are taken out of the view: its folders of queues may not be links into the store
        roots = set() if database is None else {store.consumequeue, store.batchconsumequeue}
        self._made: Set[Path] = {above for path in changed for above in path.parents} | roots

    def make(self) -> None:
        """Make it. WriteFailedError; UnreadableError."""
        self._mirror(self._store.root, self._view.root, leave_out=self._store.commitlog)
        for directory in self._store.commitlog:
            self._mirror(directory, self._view.commitlog[0])

    def _mirror(self, source: Path, target: Path, leave_out: tuple[Path, ...] = ()) -> None:
        io.make_directories(target)
        try:
            names = sorted(os.listdir(source))
        except FileNotFoundError:
            return
        for path in (source / name for name in names):
            if path in self._left_out or path in leave_out:
                continue
            if path in self._copied:
                real = Path(os.path.realpath(path))
                copy_sparsely(real, target / path.name, real.stat().st_size, Sharing.AUTO)
                io.give_to(target / path.name, _OWN)
            elif path in self._made:
                self._mirror(path, target / path.name)
            else:
                io.link_to(path, target / path.name)
