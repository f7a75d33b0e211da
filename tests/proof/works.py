"""What the proofs of kills and of failing disks do with a store: every verb that writes, on small stores, and whether
all is well afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from rmqctl import exit_codes
from rmqctl.exit_codes import exit_code_of
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.message import Message
from rmqctl.network.ha.mirror_store import MirrorStore, complete
from rmqctl.store.clean import CleanOptions, clean
from rmqctl.store.files import io
from rmqctl.store.journal.log import unfinished_change
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.offsets.decide import ResetTo
from rmqctl.store.recover.bridge.bridge import recover_bridging
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.recover.truncate import truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.snapshot.manifest import MANIFEST_NAME
from rmqctl.store.store_files import StoreFiles
from tests.goldens import TreeState, tree_state
from tests.rmqctl.looking import run
from tests.store.files.crashing import CrashError
from tests.store.write.writing import small, stored_messages

CONFIG = small(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400, max_hash_slot_num=20, max_index_num=60
)
_DEAD = "%DLQ%g"

Way = Literal["undo", "resume"]

Note = Callable[[bytes], None]
"""Is told of the body of each message that was acknowledged."""


class Told(NamedTuple):
    """How a work ended: an exit code of the command line, and what was said."""

    code: int
    text: str


class Work(NamedTuple):
    """What is done in a folder that begins as `base`: the store is `s` there, and all that it changes begins with that.
    `run` takes the folder.

    `keeps`: what the store held before is there afterwards too, for what takes no messages away. `makes`: where
    something new comes up, which is whole if it is there at all.
    """

    base: str
    run: Callable[[Path, Note], object]
    keeps: bool = True
    makes: str | None = None


def attempt(work: Work, place: Path, note: Note) -> Told:
    """Do it, as a command would: what is no error of ours is raised."""
    try:
        done = work.run(place, note)
    except RmqctlError as error:
        return Told(exit_code_of(error), f"{type(error).__name__}: {error} hint: {error.hint}")
    if isinstance(done, tuple) and hasattr(done, "code"):
        return Told(done.code, f"{done.err}{done.out}")
    return Told(exit_codes.OK, "")


# ---- stores to begin with


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


def _broken(place: Path) -> None:
    """As a killed broker with a bad disk leaves it."""
    _whole(place)
    root = place / "s"
    (root / "abort").write_text("1")
    shutil.rmtree(root / "consumequeue" / "TopicA" / "0")
    next((root / "consumequeue" / "TopicA" / "1").iterdir()).unlink()
    for path in (root / "index").iterdir():
        with path.open("r+b") as file:
            file.seek(60)
            file.write(b"\xee" * 40)
    logs = sorted((root / "commitlog").iterdir())
    (root / "commitlog" / f"{len(logs) * 16384:020}").write_bytes(bytes(16384))


def _damaged(place: Path) -> None:
    """Damage with good messages behind it."""
    _whole(place)
    third = stored_messages(place / "s", CONFIG)[20]
    with (place / "s" / "commitlog" / f"{16384:020}").open("r+b") as file:
        file.seek(third.physical_offset - 16384 + 100)
        file.write(b"\xff" * 50)


def _applied(place: Path) -> None:
    _broken(place)
    shutil.copytree(place / "s", place / "original")
    on_files(recover)(place, _nobody)


def _interrupted(place: Path) -> None:
    """A recovery that was killed when it had begun to change the store."""
    _broken(place)
    shutil.copytree(place / "s", place / "original")
    root = str(place / "s" / "index")

    def kill(operation: str, path: str, *_: int) -> None:
        if operation == "rename to" and path.startswith(root):
            raise CrashError

    io.observer = kill
    try:
        with contextlib.suppress(CrashError):
            on_files(recover)(place, _nobody)
    finally:
        io.observer = None
    assert unfinished_change(CONFIG.layout(place / "s"))


def _mirrored(place: Path) -> None:
    """The first file and a half of a master's log."""
    _whole(place)
    (place / "s").rename(place / "master")
    with MirrorStore(place / "s", CONFIG) as mirror:
        mirror.log.take(0, _log_of(place / "master")[:20000])


_BASES: dict[str, Callable[[Path], None]] = {
    "whole": _whole,
    "broken": _broken,
    "damaged": _damaged,
    "applied": _applied,
    "interrupted": _interrupted,
    "mirrored": _mirrored,
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
    """Stores to copy, as long as this lasts."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-works-") as folder:
        yield Bases(Path(folder))


# ---- what is done


def _nobody(_body: bytes) -> None:
    """Nobody notes what is acknowledged."""


def on_files(verb: Callable[..., object], *arguments: object, **options: object) -> Callable[[Path, Note], object]:
    """A verb that takes the files of a store."""

    def work(place: Path, _note: Note) -> object:
        with StoreFiles(place / "s", CONFIG) as files:
            return verb(files, *arguments, **options)

    return work


def on_store(verb: Callable[[MessageStore], object]) -> Callable[[Path, Note], object]:
    """A verb of MessageStore."""

    def work(place: Path, _note: Note) -> object:
        with MessageStore.open(place / "s", "r", CONFIG) as store:
            return verb(store)

    return work


def _new() -> str:
    """What no other message has: what a second run stores must not hide what is gone of the first."""
    return uuid.uuid4().hex


def _put(place: Path, note: Note, **changes: object) -> None:
    config = CONFIG._replace(**changes)  # type: ignore[arg-type]  # fields of the class
    with MessageStore.open(place / "s", "rw", config) as store:
        for number in range(24):
            one = message(number, _new())
            result = store.put(one)
            result.raise_failure()
            if result.status.name == "PUT_OK":
                note(one.body)


def _put_many(place: Path, note: Note, *, batch: bool = False, sync: bool = True) -> None:
    config = CONFIG._replace(flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH")
    with MessageStore.open(place / "s", "rw", config) as store:
        for first in range(0, 24, 8):
            many = [message(number, _new()) for number in range(first, first + 8)]
            if batch:
                many = [one._replace(queue_id=0) for one in many]
            for one, result in zip(many, store.put_many(many, batch=batch), strict=True):
                result.raise_failure()
                if result.status.name == "PUT_OK":
                    note(one.body)


def _put_columns(place: Path, note: Note) -> None:
    schema = pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("body", pa.binary())])
    with MessageStore.open(place / "s", "rw", CONFIG) as store:
        for first in range(0, 24, 12):
            bodies = [message(number, _new()).body for number in range(first, first + 12)]
            columns = {"topic": ["TopicA"] * 12, "queue_id": [0] * 12, "body": bodies}
            result = store.put_columns(pa.RecordBatch.from_pydict(columns, schema))
            for refusal in result.refused.values():
                refusal.raise_failure()
            for body in bodies:
                note(body)


def _append_lines(place: Path, note: Note) -> object:
    done = run("append", "-s", place / "s", "--from", place / "lines", "--json")
    if done.code == exit_codes.OK:
        for line in (place / "lines").read_text().splitlines():
            note(json.loads(line)["body"].encode())
    return done


def _truncate(place: Path, _note: Note) -> object:
    with StoreFiles(place / "s", CONFIG) as files:
        stored = stored_messages(place / "s", CONFIG)
        return truncate(files, stored[30 if len(stored) > 30 else -1].physical_offset)


def _undo(place: Path, _note: Note) -> object:
    return undo(CONFIG.layout(place / "s"))


def _resume(place: Path, _note: Note) -> object:
    return resume(CONFIG.layout(place / "s"))


def _command(*arguments: str) -> Callable[[Path, Note], object]:
    """A command line, in which @ is the folder."""
    return lambda place, _note: run(*(one.replace("@", str(place)) for one in arguments))


def _salvage(place: Path, _note: Note) -> object:
    return MessageStore.salvage([place / "s"], place / "s.new" / "out", config=CONFIG)


def _log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir())).rstrip(b"\0")


def _mirror(place: Path, note: Note) -> None:
    log = _log_of(place / "master")
    with MirrorStore(place / "s", CONFIG) as mirror:
        begin = mirror.log.compare_from()
        for offset in range(begin, len(log), 3000):
            mirror.log.take(offset, log[offset : offset + 3000])
            mirror.log.flush()
            for body in _bodies_before(place / "master", offset + 3000):
                note(body)
        mirror.log.settle()
    complete(place / "s", CONFIG, lambda said: None)


def _bodies_before(root: Path, end: int) -> list[bytes]:
    return [one.body for one in stored_messages(root, CONFIG) if one.physical_offset + one.total_size <= end]


_AT_ONCE = CleanOptions(pause=0, at_once=True)

WORKS: dict[str, Work] = {
    "append-sync": Work("whole", partial(_put, flush_disk_type="SYNC_FLUSH")),
    "append-async": Work("whole", partial(_put, flush_disk_type="ASYNC_FLUSH")),
    "append-pool": Work("whole", partial(_put, transient_store_pool_enable=True)),
    "put-many": Work("whole", _put_many),
    "put-batch": Work("whole", partial(_put_many, batch=True, sync=False)),
    "put-columns": Work("whole", _put_columns),
    "append-from": Work("whole", _append_lines),
    "redrive": Work("whole", _command("dlq", "redrive", "-s", "@/s", "-g", "g", "--yes", "--again")),
    "mirror": Work("mirrored", _mirror),
    "recover": Work("broken", on_files(recover)),
    "bridge": Work("damaged", on_files(recover_bridging)),
    "rebuild": Work("broken", on_files(rebuild)),
    "repair": Work("broken", on_files(repair)),
    "no-journal": Work("broken", on_files(recover, keeps=False)),
    "truncate": Work("broken", _truncate, keeps=False),
    "clean": Work("whole", on_files(clean, _AT_ONCE), keeps=False),
    "undo": Work("applied", _undo),
    "undo-interrupted": Work("interrupted", _undo),
    "resume": Work("interrupted", _resume),
    "prune": Work("applied", _command("log", "-s", "@/s", "--prune", "--yes")),
    "offsets-set": Work("whole", on_store(lambda store: store.set_offset("g", "TopicA", 0, 9))),
    "offsets-reset": Work("whole", on_store(lambda store: store.reset_offsets("g", "TopicA", ResetTo("latest")))),
    "snapshot": Work("whole", _command("snapshot", "@/s.new/out", "-s", "@/s"), makes="s.new/out"),
    "salvage": Work("damaged", _salvage, makes="s.new/out"),
    "export": Work("whole", _command("export", "-s", "@/s", "@/s.new/out.jsonl"), makes="s.new/out.jsonl"),
    "export-columns": Work("whole", _command("export", "-s", "@/s", "@/s.new/out.parquet"), makes="s.new/out.parquet"),
}
"""By name: what writes, on stores where it has something to do."""

KEEP_NOTHING = ("no-journal", "mirror")
"""Of these, what is unfinished is ended by `recover`."""


# ---- whether all is well


def held(place: Path) -> list[bytes]:
    """The bodies of all good messages of the store's log, in their order."""
    return [one.body for one in stored_messages(place / "s", CONFIG)]


def content(root: Path) -> TreeState:
    """The store and the times of everything in it; but for `lock`, which a refused change may leave."""
    found = tree_state(root)
    found.pop("lock", None)
    found.pop(".", None)
    return found


def comparable(state: TreeState) -> dict[str, tuple[int, str]]:
    """Without times."""
    return {path: (size, digest) for path, (size, _, digest) in state.items()}


def go_on(name: str, place: Path, base: Path, first: Told, way: Way, expected: set[bytes]) -> None:
    """What its user does after a work that ended as `first`, or was killed (a code below 0), when the disk is well:
    end what is unfinished, make the store whole, do the same again. AssertionError unless that leads to a store without
    an alarm that leads to all messages of these bodies.

    `base` is what `place` was made from.
    """
    work, root, layout = WORKS[name], place / "s", CONFIG.layout(place / "s")
    if work.makes is not None:
        _require_whole_or_none(work, place, first)
        assert content(root) == content(base / "s"), "a look has changed the store"
        return
    begun = base / "original" if (base / "original").exists() else base / "s"
    if unfinished_change(layout) is not None and name in KEEP_NOTHING:
        make_whole(work, place)
    elif unfinished_change(layout) is not None:
        assert first.code != exit_codes.OK, "an unfinished change, and no error"
        (undo if way == "undo" else resume)(layout)
        assert unfinished_change(layout) is None
        if way == "undo" and name != "prune":
            assert content(root) == content(begun), "undo has left another store"
    gone = expected - set(held(place))
    assert not gone, f"{len(gone)} messages are gone, such as {min(gone)[:20]!r}"
    told = attempt(work, place, expected.add)
    if told.code == exit_codes.REFUSED:  # the store was not closed cleanly
        assert layout.abort.exists() or "rmqctl recover" in told.text, told
        make_whole(work, place)
        told = attempt(work, place, expected.add)
    nothing_left = told.code == exit_codes.DAMAGE_OR_NOTHING and work.run in (_undo, _resume)
    assert told.code == exit_codes.OK or nothing_left, f"again: {told}"
    if work.run is _undo:
        same = content(root) == content(begun)
        assert same or way == "resume", "undo has left another store"
    if work.base not in ("whole", "mirrored"):  # what has no abort file is not recovered
        make_whole(work, place)
    assert alarms(root) == []
    missing = expected - set(all_in_queues(place))
    assert not missing, f"{len(missing)} messages are gone, such as {min(missing)[:20]!r}"


def required(name: str, place: Path, noted: list[bytes]) -> list[bytes]:
    """Of acknowledged messages those that have to be there: all, but for the pool, which keeps the last ones in memory
    alone (docs/durability.md). AssertionError for a hole in what it has lost."""
    if name != "append-pool":
        return noted
    there = set(held(place))
    kept = [body in there for body in noted]
    assert kept == sorted(kept, reverse=True), "a hole in what the pool has written"
    return [body for body in noted if body in there]


def make_whole(work: Work, place: Path) -> None:
    """What mends stores of the work's base."""
    on_files(recover_bridging if work.base == "damaged" else recover)(place, _nobody)


def _require_whole_or_none(work: Work, place: Path, first: Told) -> None:
    target = place / str(work.makes)
    for _ in range(2):
        if target.exists():
            assert _is_whole(place, target), "a file under its final name is not complete"
        else:
            assert first.code != exit_codes.OK, "done, and nothing is there"
        shutil.rmtree(place / "s.new")
        (place / "s.new").mkdir()
        first = attempt(work, place, _nobody)
        assert first.code == exit_codes.OK, f"again: {first}"


def _is_whole(place: Path, target: Path) -> bool:
    wanted = len(held(place))
    if target.suffix == ".jsonl":
        return len(target.read_bytes().splitlines()) == wanted
    if target.suffix == ".parquet":
        return bool(parquet.read_metadata(target).num_rows == wanted)
    if (target / MANIFEST_NAME).exists():
        return run("snapshot", "--verify", target).code == exit_codes.OK
    return alarms(target) == [] and len(stored_messages(target, CONFIG)) == wanted


def alarms(root: Path) -> list[str]:
    """What `check` finds in a store."""
    with MessageStore.open(root, "r", CONFIG) as store:
        return [str(finding) for finding in store.check() if finding.severity.is_alarm]


def all_in_queues(place: Path) -> list[bytes]:
    """The bodies of all messages that queues lead to."""
    found: list[bytes] = []
    with MessageStore.open(place / "s", "r", CONFIG) as store:
        for queue in store.reader.queues():
            offset = 0
            while offset < queue.max_offset:
                result = store.get(queue.topic, queue.queue_id, offset, 64)
                assert result.damaged == []
                found += [one.body for one in result.messages]
                offset = result.next_offset
    return found
