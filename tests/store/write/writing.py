"""What the tests of the write path share: small stores, copies of goldens, and the bytes of a store's folders."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqctl.formats.message import Message, StoredMessage
from rmqctl.store.config.config import StoreConfig, config_from_properties
from rmqctl.store.files.layout import file_name
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from rmqctl.store.write.prepare import copy_of
from tests.goldens import properties
from tests.processes import start

FILE_SIZE = 65536
NEVER = 10**8
"""Milliseconds: more than any test lasts."""
SMALL = StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
    timer_wheel_enable=False,
)


def small(**changes: object) -> StoreConfig:
    """A configuration with small files, and `changes`."""
    return SMALL._replace(**changes)  # type: ignore[arg-type]  # each test names fields of the class


def golden_config(name: str) -> StoreConfig:
    """The configuration that golden `name` was written with."""
    keys = {key.removeprefix("store."): value for key, value in properties(name).items() if key.startswith("store.")}
    return config_from_properties({key: value for key, value in keys.items() if "@DIR@" not in value})


def stored_messages(root: Path, config: StoreConfig | None = None) -> list[StoredMessage]:
    """All good messages of the store's log."""
    with StoreFiles(root, config) as files:
        return [record for record in walk(files.log) if isinstance(record, StoredMessage)]


def records(root: Path) -> list[tuple[str, int]]:
    """Kind and physical offset of every record of the log."""
    with StoreFiles(root, SMALL) as files:
        return [(type(record).__name__, record.physical_offset) for record in walk(files.log)]


def copy_store(source: Path, target: Path, config: StoreConfig) -> None:
    """Put every message of `source` into a new store, one by one, as stored."""
    with MessageStore.open(target, "rw", config, create=True) as store:
        for message in stored_messages(source):
            result = store.put(copy_of(message), as_stored=True)
            assert result.status.is_stored, result


def files_below(folder: Path) -> dict[str, bytes]:
    """Content of every file below `folder`, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def message(size: int = 100, *, topic: str = "TopicA", queue_id: int = 0, **fields: object) -> Message:
    """A message with a body of `size` bytes."""
    return Message(topic=topic, body=b"b" * size, queue_id=queue_id, **fields)  # type: ignore[arg-type]  # as above


def body_that_leaves(left: int, used: int, topic: str = "TopicA") -> int:
    """Size of the body of an IPv4 message without properties that leaves `left` bytes of a file with `used` bytes."""
    return FILE_SIZE - used - left - 91 - len(topic)


def log_file(root: Path, number: int) -> Path:
    """The file of that number of a small store's commitlog."""
    return root / "commitlog" / file_name(number * FILE_SIZE)


def run_python(script: str, *arguments: object, is_talked_to: bool = False) -> subprocess.Popen[str]:
    """Start a Python program with the project on its path; its stdout is a pipe, and its stdin if it `is_talked_to`."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return start(command, stdin=subprocess.PIPE if is_talked_to else None, stdout=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines the program prints."""
    assert process.stdout is not None
    return (line.rstrip("\n") for line in process.stdout)


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until `condition` holds; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
