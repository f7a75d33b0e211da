"""Which store a command means, and opening it with the broker.conf that goes with it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import RmqctlError
from rmqctl.output.output import refuse_place, talk

if TYPE_CHECKING:
    from rmqctl.store.config.config import StoreConfig
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.read.select import Selection
    from rmqctl.store.recover.report import RecoverReport
    from rmqctl.store.store_files import StoreFiles

STORE_VARIABLE = "RMQCTL_STORE"
FILE_VARIABLE = "RMQCTL_CONFIG"
COMPLETION_VARIABLE = "_RMQCTL_COMPLETE"
# for file descriptors, which nothing frees in a process that only writes
_PATIENCE_SECONDS = 5.0


class StoreLocation(NamedTuple):
    """Where the store is, and the broker.conf that describes it, if one was named. Neither has been opened yet."""

    path: Path
    config_path: Path | None = None


def config_file() -> str:
    """Return the path of config.toml; empty where it is not to be read."""
    variable = os.environ.get(FILE_VARIABLE)
    if variable is not None:
        return variable
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "rmqctl", "config.toml")


def locate_store(store_path: Path | None, config_path: Path | None) -> StoreLocation:
    """Return the store: `store_path` (from -s or the environment), else the config's, else ~/store."""
    if store_path is None and config_path is not None:
        store_path = configured_store(config_path)
    return StoreLocation(store_path or Path.home() / "store", config_path)


def configured_store(config_path: Path) -> Path | None:
    """Return the store that a broker.conf names; None where it names none."""
    from rmqctl.store.config.config import read_broker_conf

    configured = read_broker_conf(config_path).store_path_root_dir
    return Path(configured) if configured else None


_ON_A_STORE = re.compile(r"`(rmqctl [a-z]+ [^`]*-s [^`]+)`")


@contextlib.contextmanager
def naming_config(config_path: Path | None) -> Iterator[None]:
    """Commands that hints of errors name go by the same broker.conf: without it they may see another store."""
    try:
        yield
    except RmqctlError as error:
        if config_path is not None and error.hint is not None:
            given = f" -c {shlex.quote(str(config_path))}"
            error.hint = _ON_A_STORE.sub(lambda found: f"`{found[1]}{'' if ' -c ' in found[1] else given}`", error.hint)
        raise


# Totals of progress bars: functions, because a bar that never shows costs no look at the log's end.


def log_bytes(files: StoreFiles, passes: int = 1) -> Callable[[], int]:
    """Return what counts the bytes of the commitlog up to its end, times `passes`."""

    def count() -> int:
        from rmqctl.store.log.survey import written_bytes

        return passes * written_bytes(files.log)

    return count


def checked_bytes(files: StoreFiles, passes: int = 1) -> Callable[[], int]:
    """Return what counts the bytes that a check reads: the commitlog, `passes` times, and once copies of messages in
    compaction logs and tiered storage."""

    def count() -> int:
        from rmqctl.store.check.tiered import copied_bytes

        return log_bytes(files, passes)() + copied_bytes(files)

    return count


def selected_bytes(files: StoreFiles, selection: Selection) -> Callable[[], int]:
    """Return what counts the bytes of the commitlog that `selection` leads through, up to the log's end."""

    def count() -> int:
        from rmqctl.store.read.select import walked_bytes

        return walked_bytes(files.log, selection, files.log.written_end())

    return count


def disk_bytes(*places: Path) -> Callable[[], int | None]:
    """Return what counts the bytes that files below `places` take on disk; None where one goes meanwhile."""

    def count() -> int | None:
        from rmqctl.store.files.io import tree_on_disk_bytes

        try:
            return sum(map(tree_on_disk_bytes, places))
        except FileNotFoundError:
            return None

    return count


@contextlib.contextmanager
def noting_stored(store: MessageStore, verb: str, tell: Callable[[str], None] = talk) -> Iterator[None]:
    """Note for `rmqctl log` what is stored inside, however it ends. A note that fails is reported and stops nothing."""
    import sys

    from rmqctl.formats.errors import RmqctlError
    from rmqctl.store.files.background import limited_patience
    from rmqctl.store.journal.entry import note_stored

    log = store.files.log
    begin = log.max_offset
    try:
        with limited_patience(_PATIENCE_SECONDS):
            yield
    finally:
        try:
            note_stored(store.files.layout, verb, _without_body(sys.argv[1:]), begin, log.max_offset)
        except RmqctlError as error:
            tell(f"note: `rmqctl log` will not list this: {error}")


def _without_body(arguments: list[str]) -> list[str]:
    """The command line without the text of the message, which may be long or secret."""
    shown = ["…" if before == "--body" else one for before, one in zip(["", *arguments], arguments, strict=False)]
    return ["--body=…" if one.startswith("--body=") else one for one in shown]


def broker_config(location: StoreLocation, tell: Callable[[str], None] = talk) -> StoreConfig:
    """Settings of the broker.conf named with -c, RocketMQ's defaults without. Keys that do nothing here are named."""
    from rmqctl.store.config.config import StoreConfig, config_from_properties, odd_settings, read_properties

    path = location.config_path
    if path is None:
        return StoreConfig()
    from rmqctl.store.config.config import without_effect
    from rmqctl.store.options import notice

    properties = read_properties(path)
    config = config_from_properties(properties, str(path))
    listen(tell)
    for sentence in odd_settings(properties):
        notice(f"{path}: {sentence}")
    for sentence in without_effect(properties, str(path)):
        notice(sentence)
    return config


def listen(tell: Callable[[str], None] = talk) -> None:
    """Report notes of the store beside answers."""
    from rmqctl.store.options import tell_notices

    tell_notices(tell)


@contextlib.contextmanager
def naming_create(path: Path, config: StoreConfig) -> Iterator[None]:
    """Have the error of a place where there is no store yet say how to make one there."""
    from rmqctl.formats.errors import NotAStoreError
    from rmqctl.store.write.opening import is_empty_place

    try:
        yield
    except NotAStoreError as error:
        if is_empty_place(config.layout(path)):
            error.hint = f"{error.hint}; to make a new one there, say --create"
        raise


def tell_if_open(store: MessageStore) -> None:
    """Before a dry run: a store that a process has open looks like one that was not closed."""
    from rmqctl.store.files.lock import holder_name, lock_holder, users_of

    layout = store.files.layout
    holder = lock_holder(layout.lock)
    users = [holder] if holder is not None else [process for process, _ in users_of(layout)]
    if users:
        who = holder_name(users[0])
        talk(f"{who} has the store open: it may write meanwhile, and the change itself would be refused")


@contextlib.contextmanager
def recovered(
    files: StoreFiles, location: StoreLocation, tell: Callable[[str], None] = talk
) -> Iterator[StoreLocation]:
    """Yield where the store at `location`, opened as `files`, can be opened as `rmqctl recover` would leave it, and say
    what differs. Errors as `recovered_view`."""
    from rmqctl.output.terminal import progress
    from rmqctl.store.files import io
    from rmqctl.store.options import Events
    from rmqctl.store.recover.view import recovered_view

    with contextlib.ExitStack() as opened:
        with progress("reading the commitlog", log_bytes(files), "bytes") as bar:
            view = opened.enter_context(recovered_view(files, Events(bar.advance, note=tell)))
        tell(_differences(view.report))
        config_path = location.config_path
        if config_path is not None:
            from rmqctl.store.config.config import read_properties

            properties = read_properties(config_path)
            config_path = view.root.parent / config_path.name
            io.write_whole(config_path, view.broker_conf(properties))
        yield StoreLocation(view.root, config_path)


def _differences(report: RecoverReport) -> str:
    from rmqctl.formats.errors import counted

    parts = [
        f"{counted(report.units_added, 'unit')} added and {report.units_removed} removed in "
        f"{counted(report.queues_changed, 'queue')}",
        f"{counted(report.index_files_rebuilt, 'index file')} rebuilt",
        f"{counted(report.truncated_bytes, 'byte')} after the end of the log left out",
    ]
    if report.damaged:
        parts.append(f"{counted(len(report.damaged), 'damaged span')} passed over")
    return f"shown as recovered, in a temporary folder: {', '.join(parts)}; the store is unchanged"


def open_store(location: StoreLocation, tell: Callable[[str], None] = talk) -> MessageStore:
    """Open the store for reading; NotAStoreError, UnreadableError or UsageError as they come, RefusedError where
    standard output was led into it. `tell` takes what is to be said meanwhile and later."""
    from rmqctl.store.message_store import MessageStore

    listen(tell)
    # nothing is locked: what changes the store takes its lock by itself
    store = MessageStore.open(location.path, "r", broker_config(location, tell))
    refuse_place(store.files.layout)
    return store
