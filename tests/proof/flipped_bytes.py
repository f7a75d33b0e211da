"""Every byte of a small store changed, one at a time: `check` reports it, or the byte is one that nothing covers; and
no message that is untouched is ever said not to be there."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import CorruptError, RmqctlError, UnreadableError
from rmqctl.formats.message import StoredMessage
from rmqctl.store.check.catalogue import Finding
from rmqctl.store.check.check import check
from rmqctl.store.message_store import MessageStore
from rmqctl.store.store_files import StoreFiles
from tests.proof import small_store
from tests.proof.proving import Case
from tests.proof.small_store import CONFIG, Used
from tests.proof.uncovered import MISSED_BY_KEY, UNCOVERED

HOW: dict[str, Callable[[int], int]] = {
    **{f"bit{bit}": functools.partial(int.__xor__, 1 << bit) for bit in range(8)},
    "zeroed": lambda _: 0,
    "set": lambda _: 0xFF,
}
"""What is done to a byte."""


class Subject(NamedTuple):
    """The store that is changed and restored, and what is known of it."""

    root: Path
    messages: list[StoredMessage]
    used: list[Used]
    findings: frozenset[Finding]


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` changes by lot of all that there are, each once: byte by byte, in ten ways."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-bytes-") as folder:
        subject = subject_in(Path(folder))
        places = [(used, at) for used in subject.used for at in range(used.offset, used.offset + used.size)]
        total = len(places) * len(HOW)
        ways = list(HOW)
        for number in random.Random(seed).sample(range(total), min(count, total)):
            used, at = places[number // len(HOW)]
            how = ways[number % len(HOW)]
            yield f"{used.file}@{at} {how}", functools.partial(_try_one, subject, used, at, how)


def subject_in(folder: Path) -> Subject:
    """A store below `folder`, which nobody has changed yet."""
    messages = small_store.make(folder)
    root = folder / "store"
    return Subject(root, messages, list(small_store.used_bytes(root)), frozenset(_findings(root)))


def _try_one(subject: Subject, used: Used, at: int, how: str, _: Path) -> None:
    place = (used.structure, used.field)
    with changed(subject.root / used.file, at, how) as is_changed:
        if is_changed:
            is_reported = bool(_findings(subject.root) - subject.findings)
            assert is_reported or place in UNCOVERED, f"check says nothing: {used}"
            for absent in look_for(subject, used, at):
                assert place in MISSED_BY_KEY, f"{absent}: {used}"
                assert absent.startswith("by key"), f"{absent}: {used}"


@contextlib.contextmanager
def changed(path: Path, at: int, how: str) -> Iterator[bool]:
    """Within this one byte is another, with the file's times as they were; whether that makes a difference."""
    times = path.stat()

    def put(byte: int) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([byte]))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    with path.open("rb") as file:
        file.seek(at)
        (byte,) = file.read(1)
    put(HOW[how](byte))
    try:
        yield HOW[how](byte) != byte
    finally:
        put(byte)


def _findings(root: Path) -> set[Finding]:
    """Of a full check in this process; nobody else can be at the store, so it is not looked for."""
    with StoreFiles(root, CONFIG) as files:
        files.is_taken = True
        return set(check(files, "full"))


def look_for(subject: Subject, used: Used, at: int) -> Iterator[str]:
    """Ask for messages that are untouched, in all ways; each way in which one is said not to be there.

    A changed byte of the log has nothing to do with other messages: one of them is asked for. All are, where queues and
    index lead to them."""
    log_offset = int(Path(used.file).name) + at if used.file.startswith("commitlog/") else -1
    untouched = [one for one in subject.messages if not one.physical_offset <= log_offset < one.end]
    leads = used.file.startswith(("consumequeue", "index/"))
    with MessageStore.open(subject.root, config=CONFIG) as store:
        for wanted in untouched if leads else [untouched[at % len(untouched)]]:
            for way, ask in _WAYS.items():
                try:
                    is_answered = ask(store, wanted)
                except (CorruptError, UnreadableError):
                    continue
                except RmqctlError as error:
                    yield f"{way}: {error}"
                    continue
                if not is_answered:
                    yield f"{way}: not there"


def _by_queue(store: MessageStore, wanted: StoredMessage) -> bool:
    result = store.get(wanted.topic, wanted.queue_id, wanted.queue_offset, 1)
    return result.messages == [wanted] or bool(result.damaged)


def _by_key(store: MessageStore, wanted: StoredMessage) -> bool:
    result = store.query(wanted.topic, wanted.properties()["UNIQ_KEY"])
    return wanted in result.messages or bool(result.damaged)


_WAYS: dict[str, Callable[[MessageStore, StoredMessage], bool]] = {
    "by place": lambda store, wanted: store.message_at(wanted.physical_offset) == wanted,
    "by id": lambda store, wanted: store.lookup(wanted.message_id) == wanted,
    "by queue": _by_queue,
    "by key": _by_key,
}
