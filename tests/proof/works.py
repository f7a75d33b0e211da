"""What the proofs of kills and of failing disks do with a store: every verb that writes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rmqctl.formats.errors import RmqctlError
from rmqctl.network.ha.mirror_store import MirrorStore, complete
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import exit_code_of
from rmqctl.store.clean.cleaner import clean
from rmqctl.store.clean.options import CleanOptions
from rmqctl.store.journal.undo import resume, undo
from rmqctl.store.message_store import MessageStore
from rmqctl.store.offsets.change import ResetTo
from rmqctl.store.options import ChangeOptions
from rmqctl.store.recover.bridge import recover_bridging
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover, truncate
from rmqctl.store.repair.repair import repair
from rmqctl.store.store_files import StoreFiles
from tests.proof.stores import CONFIG, log_of, message
from tests.rmqctl.looking import Done, run
from tests.store.write.writing import stored_messages

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
    if isinstance(done, Done):
        return Told(done.code, f"{done.err}{done.out}")
    return Told(exit_codes.OK, "")


def nobody(_body: bytes) -> None:
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


def undone(place: Path, _note: Note) -> object:
    return undo(CONFIG.layout(place / "s"))


def resumed(place: Path, _note: Note) -> object:
    return resume(CONFIG.layout(place / "s"))


def _command(*arguments: str) -> Callable[[Path, Note], object]:
    """A command line, in which @ is the folder."""
    return lambda place, _note: run(*(one.replace("@", str(place)) for one in arguments))


def _salvage(place: Path, _note: Note) -> object:
    return MessageStore.salvage([place / "s"], place / "s.new" / "out", config=CONFIG)


def _mirror(place: Path, note: Note) -> None:
    log = log_of(place / "master")
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
    "recover-entries": Work("entries", on_files(recover)),
    "cut-entries": Work("entries damaged", on_files(recover, cut=True), keeps=False),
    "undo-entries": Work("entries applied", undone),
    "undo-interrupted-entries": Work("entries interrupted", undone),
    "resume-entries": Work("entries interrupted", resumed),
    "no-journal": Work("broken", on_files(recover, change=ChangeOptions(keep_undo=False))),
    "no-journal-entries": Work("entries", on_files(recover, change=ChangeOptions(keep_undo=False))),
    "truncate": Work("broken", _truncate, keeps=False),
    "clean": Work("whole", on_files(clean, _AT_ONCE), keeps=False),
    "undo": Work("applied", undone),
    "undo-interrupted": Work("interrupted", undone),
    "resume": Work("interrupted", resumed),
    "prune": Work("applied", _command("log", "-s", "@/s", "--prune", "--yes")),
    "offsets-set": Work("whole", on_store(lambda store: store.set_offset("g", "TopicA", 0, 9))),
    "offsets-reset": Work("whole", on_store(lambda store: store.reset_offsets("g", "TopicA", ResetTo("latest")))),
    "offsets-set-delay": Work("configured", on_store(lambda store: store.set_delay_offset(1, 7, anywhere=True))),
    "purge": Work("configured", on_store(lambda store: store.purge(["TopicA"]))),
    "snapshot": Work("whole", _command("snapshot", "@/s.new/out", "-s", "@/s"), makes="s.new/out"),
    "salvage": Work("damaged", _salvage, makes="s.new/out"),
    "export": Work("whole", _command("export", "-s", "@/s", "@/s.new/out.jsonl"), makes="s.new/out.jsonl"),
    "export-columns": Work("whole", _command("export", "-s", "@/s", "@/s.new/out.parquet"), makes="s.new/out.parquet"),
}
"""By name: what writes, on stores where it has something to do."""

MENDS: dict[str, Callable[[Path, Note], object]] = {
    "damaged": on_files(recover_bridging),
    "entries damaged": on_files(recover, cut=True),
}
"""By base: what mends its stores where that is not `recover`."""

KEEP_NOTHING = ("no-journal", "no-journal-entries", "mirror")
"""Of these, what is unfinished is ended by `recover`."""
