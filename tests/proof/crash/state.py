"""A state that a cut has left, opened as its user would, and what has to hold of it whatever was going on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from rmqctl.formats.errors import NotAStoreError, RefusedError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.check import check
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.reading import exists, is_directory
from rmqctl.store.message_store import MessageStore
from rmqctl.store.read.reader import StoreReader
from rmqctl.store.recover.bridge import PADDING_TOPIC
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles, read_checkpoint
from tests.store.journal.commands import CONFIG
from tests.store.write.writing import stored_messages

Files = dict[str, bytes | None]
"""Bytes by path below a folder, None for a directory."""


class Kept(NamedTuple):
    """A message by where it is and what it says."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    body: bytes


class Acknowledged(NamedTuple):
    """A note of the work: the message at this physical offset and all before it were promised to be on disk."""

    physical_offset: int


class State(NamedTuple):
    """`root`: the store in the case's own folder. `before`, `after`: the messages in the log before the step that the
    cut came into, and after it; `files_before`, `files_after`: all that was there then, below the folder of `root`.
    `notes`: what had been told since the step began. `is_done`: the step has returned."""

    root: Path
    random: Random
    config: StoreConfig
    before: list[Kept]
    after: list[Kept]
    files_before: Files
    files_after: Files
    notes: list[object]
    is_done: bool


def kept(message: StoredMessage) -> Kept:
    """What is compared of a message."""
    return Kept(
        message.physical_offset,
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.store_timestamp,
        bytes(message.body),
    )


def in_log(root: Path, config: StoreConfig = CONFIG) -> list[Kept]:
    """Every good message of the log, in its order."""
    return [kept(message) for message in stored_messages(root, config)]


def in_queues(root: Path, config: StoreConfig = CONFIG) -> list[Kept]:
    """Every message that a consumer gets, in the order of the log; each was found in its own slot."""
    with MessageStore.open(root, "r", config) as store:
        return sorted(kept(message) for message in store.messages(order="queue"))


def files_of(root: Path) -> Files:
    """What is below a folder, but for the lock file, which says nothing."""
    paths = (path for path in sorted(root.rglob("*")) if path.name != "lock")
    return {path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes() for path in paths}


def check_checkpoint(root: Path, expected: list[Kept], config: StoreConfig = CONFIG) -> None:
    """A checkpoint names nothing that is not on disk: a broker begins to read behind what it says."""
    if not is_directory(root / "commitlog"):
        return
    named = read_checkpoint(root / "checkpoint")
    if named is None:
        return
    found = set(in_log(root, config))
    in_time = [one for one in expected if one.store_timestamp <= named.physic_msg_timestamp]
    assert not [one for one in in_time if one not in found], "the checkpoint names messages that are not in the log"
    with StoreFiles(root, config) as files:
        reader = StoreReader(files)
        for one in expected:
            if one.store_timestamp <= named.logics_msg_timestamp:
                got = reader.get(one.topic, one.queue_id, one.queue_offset, 1).messages
                assert [kept(message) for message in got] == [one], (
                    "the checkpoint names a unit that is not in its queue"
                )


def check_closed(root: Path, config: StoreConfig = CONFIG) -> None:
    """Where nothing says that a store was not closed cleanly, it takes messages as it is and hides none."""
    if exists(root / "abort") or not is_directory(root / "commitlog"):
        return
    assert in_queues(root, config) == in_log(root, config), "a store without abort lacks units"
    check_alarms(root, config)
    MessageStore.open(root, "rw", config).close()


def check_alarms(root: Path, config: StoreConfig = CONFIG) -> None:
    """`check` has nothing to say."""
    with StoreFiles(root, config) as files:
        alarms = [f"{one.code} {one.message}" for one in check(files) if one.severity.is_alarm]
    assert not alarms, f"check after recover: {alarms}"


Recovery = Callable[[StoreFiles], object]


def cut(files: StoreFiles) -> None:
    """End the log where it is damaged, whatever is behind."""
    recover(files, cut=True)


def recovered(root: Path, config: StoreConfig = CONFIG, *, damaged: Recovery | None = None) -> list[Kept]:
    """What is in the log of a store after `recover`: the same is in the queues, `check` is content, and a second
    recovery has nothing to do. Nothing at all where there is no store.

    `damaged`: what its user decides on where good messages are behind damage; without it there is none.
    """
    try:
        with StoreFiles(root, config) as files:
            recover(files)
    except NotAStoreError:
        return []
    except RefusedError as error:
        if damaged is None or "--cut" not in (error.hint or ""):
            raise
        with StoreFiles(root, config) as files:
            (damaged if files.log.files else cut)(files)
    found = in_log(root, config)
    # what fills a gap of which nothing is known is in no queue of anybody
    differing = sorted({*in_queues(root, config)} ^ {one for one in found if not PADDING_TOPIC.startswith(one.topic)})
    assert not differing, f"after recover queues and log differ: {[one[:5] for one in differing]}"
    check_alarms(root, config)
    before = files_of(root)
    with StoreFiles(root, config) as files:
        again = recover(files)
    assert not again.operations, f"a second recovery has something to do: {again.operations}"
    assert files_of(root) == before, "a second recovery changed something"
    return found
