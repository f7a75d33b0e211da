"""Small stores that the proofs of kills and of failing disks begin with, as brokers, bad disks and kills leave them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rmqctl.formats.message import Message
from rmqctl.network.ha.mirror_store import MirrorStore
from rmqctl.store.files import io
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.store.files.crashing import CrashError
from tests.store.small_dledger import into_dledger, small_index
from tests.store.write.writing import small, stored_messages

CONFIG = small(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400, max_hash_slot_num=20, max_index_num=60
)
_DEAD = "%DLQ%g"


def message(number: int, label: str = "old", size: int = 900, **properties: str) -> Message:
    """A message with a body of its own."""
    body = f"{label}-{number}-".encode().ljust(size, b"x")
    given = {"KEYS": f"{label}{number}", "UNIQ_KEY": f"{label}-{number}", **properties}
    return Message("TopicA", body, number % 2, properties=given)


def _whole(place: Path) -> None:
    with MessageStore.open(place / "s", "rw", CONFIG, create=True) as store:
        for number in range(40):
            store.put(message(number))
        for number in range(3):
            retried = message(number, "dead", RETRY_TOPIC="TopicA", ORIGIN_MESSAGE_ID=f"{number:032X}")
            store.put(retried._replace(topic=_DEAD, queue_id=0)).raise_failure()
    (place / "s.new").mkdir()
    config = place / "s" / "config"
    config.mkdir(exist_ok=True)
    # as fastjson writes maps of numbers
    (config / "consumerOffset.json").write_text('{"offsetTable":{"TopicA@g":{0:5,1:7}}}')
    lines = [{"topic": "TopicA", "queue_id": 1, "body": f"line-{number}-" + "y" * 700} for number in range(30)]
    (place / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _configured(place: Path) -> None:
    """As a broker leaves it: with topics.json, and messages that wait for level 1."""
    _whole(place)
    with MessageStore.open(place / "s", "rw", CONFIG) as store:
        for number in range(9):
            later = message(number, "later", DELAY="1", REAL_TOPIC="TopicA", REAL_QID="0")
            store.put(later._replace(topic="SCHEDULE_TOPIC_XXXX", queue_id=0)).raise_failure()
    entries = {
        topic: {"topicName": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        for topic in ("TopicA", _DEAD, "SCHEDULE_TOPIC_XXXX")
    }
    (place / "s" / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": entries}))


def _broken(place: Path) -> None:
    """As a killed broker with a bad disk leaves it."""
    _whole(place)
    _break(place / "s")
    root = place / "s"
    logs = sorted((root / "commitlog").iterdir())
    (root / "commitlog" / f"{len(logs) * 16384:020}").write_bytes(bytes(16384))


def _break(root: Path) -> None:
    (root / "abort").write_text("1")
    shutil.rmtree(root / "consumequeue" / "TopicA" / "0")
    next((root / "consumequeue" / "TopicA" / "1").iterdir()).unlink()
    for path in (root / "index").iterdir():
        with path.open("r+b") as file:
            file.seek(60)
            file.write(b"\xee" * 40)


def _damaged(place: Path) -> None:
    """Damage with good messages behind it."""
    _whole(place)
    third = stored_messages(place / "s", CONFIG)[20]
    with (place / "s" / "commitlog" / f"{16384:020}").open("r+b") as file:
        file.seek(third.physical_offset - 16384 + 100)
        file.write(b"\xff" * 50)


def _entries(place: Path) -> None:
    """The same of a DLedger member: units of its index are wrong, and half an entry follows its last one."""
    _whole(place)
    root = place / "s"
    into_dledger(root, CONFIG)
    _break(root)
    last = sorted((root / "dledger-n0" / "data").iterdir())[-1]
    first, *_ = sorted((root / "dledger-n0" / "index").iterdir())
    for path, at, data in ((last, len(last.read_bytes().rstrip(b"\0")), b"\0\0\0\1torn"), (first, 70, b"\7" * 100)):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)


def _damaged_entries(place: Path) -> None:
    """The same, and an entry has a wrong number: DLedger ends its log there, before good messages."""
    _entries(place)
    root = place / "s"
    at = stored_messages(root, CONFIG)[20].physical_offset
    with (root / "dledger-n0" / "data" / f"{at // 16384 * 16384:020}").open("r+b") as file:
        file.seek(at % 16384 - 48 + 8)
        file.write(b"\xff" * 8)


def _recovered(place: Path) -> None:
    with StoreFiles(place / "s", CONFIG) as files:
        recover(files)


def _applied(place: Path, broken: Callable[[Path], None] = _broken) -> None:
    broken(place)
    shutil.copytree(place / "s", place / "original")
    _recovered(place)


def _interrupted(place: Path, broken: Callable[[Path], None] = _broken) -> None:
    """A recovery that was killed when it had begun to change the store."""
    broken(place)
    shutil.copytree(place / "s", place / "original")
    root = str(place / "s" / "index")

    def kill(operation: str, path: str, *_: int) -> None:
        if operation == "rename to" and path.startswith(root):
            raise CrashError

    io.observer = kill
    try:
        with contextlib.suppress(CrashError):
            _recovered(place)
    finally:
        io.observer = None
    assert unfinished_change(CONFIG.layout(place / "s"))


def _mirrored(place: Path) -> None:
    """The first file and a half of a master's log."""
    _whole(place)
    (place / "s").rename(place / "master")
    with MirrorStore(place / "s", CONFIG) as mirror:
        mirror.log.take(0, log_of(place / "master")[:20000])


_BASES: dict[str, Callable[[Path], None]] = {
    "whole": _whole,
    "configured": _configured,
    "broken": _broken,
    "damaged": _damaged,
    "applied": _applied,
    "interrupted": _interrupted,
    "mirrored": _mirrored,
    "entries": _entries,
    "entries damaged": _damaged_entries,
    "entries applied": partial(_applied, broken=_entries),
    "entries interrupted": partial(_interrupted, broken=_entries),
}


class Bases:
    """The stores that works begin with, each made once; and what they hold."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, list[bytes]] = {}

    def copy(self, name: str, place: Path) -> Path:
        """Make `place`, an empty folder, as the base of that name is, times included; where that is."""
        base = self._folder / name
        if name not in self._held:
            base.mkdir()
            _BASES[name](base)
            self._held[name] = held(base)
        shutil.copytree(base, place, symlinks=True, dirs_exist_ok=True)
        # copying the files of a folder has changed its time
        for path in base.rglob("*"):
            status = path.stat()
            os.utime(place / path.relative_to(base), ns=(status.st_atime_ns, status.st_mtime_ns))
        return base

    def held(self, name: str) -> list[bytes]:
        """The bodies of all good messages of a base that was copied."""
        return self._held[name]


@contextlib.contextmanager
def bases() -> Iterator[Bases]:
    """Stores to copy, as long as this lasts. DLedger's index has small files."""
    with small_index(), tempfile.TemporaryDirectory(prefix="rmqctl-works-") as folder:
        yield Bases(Path(folder))


def held(place: Path) -> list[bytes]:
    """The bodies of all good messages of the store's log, in their order."""
    return [one.body for one in stored_messages(place / "s", CONFIG)]


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir())).rstrip(b"\0")
