"""Bytes that nobody wrote, for everything that reads: nothing but an error of ours comes out, soon, in bounded memory.

What is fed begins as something sound, which is then cut, repeated, overwritten and spliced by lot. One case is a
reader and a number; together with the seed they make the same bytes again. `guided` feeds the same readers with what
leads them into code that no input before has run.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from rmqctl.formats.compression import compress, decompress
from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.layouts import ROCKSDB_BATCH
from rmqctl.formats.message import FrameDamage, StoredMessage, decode_message
from rmqctl.messages.message_source import message_source
from rmqctl.network.remoting.codec import FrameDecoder, RemotingCommand, encode_frame
from rmqctl.output import outcome as exit_codes
from rmqctl.output.times import parse_span, parse_time
from rmqctl.store.check.cross import ScrubState, load_state, save_state
from rmqctl.store.config.tiered_table import TABLE
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import UNHEARD, ChangeOptions, Events
from rmqctl.store.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    RecordError,
    doubts,
    doubts_of_entry,
    kv_entry,
    ordered_pop,
    parsed,
    revive_record,
)
from rmqctl.store.read.tiered import tiered_rows, tiered_storage
from rmqctl.store.read.tiered_index import messages_with_key
from rmqctl.store.rocksdb.database import Database, batch_entries
from rmqctl.store.rocksdb.manifest import manifest_edits
from rmqctl.store.rocksdb.message_storage import index_row
from rmqctl.store.rocksdb.records import MalformedError, RecordReader
from rmqctl.store.rocksdb.table import SortedTable, block_pairs
from rmqctl.store.salvage.salvage import salvage
from rmqctl.store.store_files import read_checkpoint
from tests.goldens import log_golden
from tests.proof import small_store
from tests.proof.proving import Case
from tests.rmqctl.looking import run
from tests.store.rocksdb.stores import unpacked

_MOST_SECONDS = 10.0
_MOST_BYTES = 256 << 20
_FRAME = 1000
# what `check` says of bytes of a message that no checksum covers
_IN_MESSAGES = {"RMQ-LOG-016", "RMQ-CQ-018"}
_BODY = b"body " * 200
_INTERESTING = (b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 8, b"\x7f" + b"\xff" * 7)
_WORDS = (
    b"Infinity",
    b"-1e999",
    b"NaN",
    b"null",
    b"[" * 5000,
    b'{"a":' * 2000,
    b"9" * 400,
    b'"\\ud800"',
    b"{}",
    b"\xc3",
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """`data` with one to six things done to it."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.choice((1, 2, 4, 8, 64, 1000)))
        match rng.randrange(6):
            case 0:
                del made[at:end]
            case 1:
                made[at:at] = made[at:end] * rng.randint(1, 4)
            case 2:
                made[at:end] = rng.randbytes(end - at)
            case 3:
                word = rng.choice(_INTERESTING)
                made[at : at + len(word)] = word
            case 4:
                made[at : at + rng.randrange(3)] = rng.choice(_WORDS)
            case 5 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
    return bytes(made)


class Reader(NamedTuple):
    """Something that reads bytes: sound ones to begin with, and how many inputs it gets while one that looks at a whole
    store gets ten, in about the same time. What it cannot read it tells by an RmqctlError, or says nothing."""

    samples: list[bytes]
    read: Callable[[bytes], object]
    turns: int = 200


@contextlib.contextmanager
def readers(folder: Path) -> Iterator[dict[str, Reader]]:
    """All that read, by name; what they need is made in `folder`."""
    messages = small_store.make(folder)
    root = folder / "store"
    with MessageStore.open(root, config=small_store.CONFIG) as store:
        store.truncate(messages[40].physical_offset)  # for a journal
    configuration = [path.read_bytes() for path in _files(root / "config")]
    with MessageStore.open(root, config=small_store.CONFIG) as store:
        rows = pyarrow.Table.from_batches(list(store.scan())).slice(0, 5)
    frames = [path.read_bytes() for path in _files(root / "commitlog")]
    target = MessageStore.open(folder / "target", "rw", small_store.CONFIG, create=True, allocate_ahead=False)
    with target as opened:
        read_input = functools.partial(_read_input, opened)
        yield {
            "frames": Reader([data[: 4 * _FRAME] for data in frames], _read_frames),
            "salvage": Reader(frames, functools.partial(_salvage, folder / "blob", folder / "salvaged"), 10),
            "append": Reader([_lines(), *_tables(rows)], functools.partial(_append, folder), 10),
            "log": _in_place(root, messages, root / "commitlog"),
            "queues-and-index": _in_place(
                root, messages, root / "consumequeue", root / "consumequeue_ext", root / "index"
            ),
            "configuration": _in_place(root, messages, root / "config"),
            "timer": _in_place(root, messages, root / "timerlog", root / "config/timercheck", root / "timerwheel"),
            "pop": Reader(_POP_RECORDS, _read_pop, 100),
            "tiered": _tiered(log_golden("v55-tiered-crash", folder).store),
            "rocksdb": _rocksdb(unpacked(ROCKSDB_STORE, folder)),
            "rocksdb-parts": Reader(_rocksdb_parts(folder / ROCKSDB_STORE), _read_rocksdb_parts, 100),
            "journal": _in_place(root, messages, folder / "store.rmqctl"),
            "check-state": _check_state(root, folder / "state"),
            "config-json": Reader(configuration, functools.partial(_read_configuration, folder / "checkpoint"), 100),
            "compression": Reader([compress(_BODY, kind) for kind in (1, 2, 3)], _unpack),
            "ids-and-times": _texts(root, messages[3].message_id),
            "lines": Reader([_lines()], read_input),
            "tables": Reader(_tables(rows), read_input),
            "wire": Reader([_frame() * 2], _read_wire),
        }


def _files(*folders: Path) -> list[Path]:
    """Files that hold anything, of folders or named alone."""
    found = itertools.chain.from_iterable([folder, *folder.rglob("*")] for folder in folders)
    return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _in_place(root: Path, messages: list[StoredMessage], *below: Path) -> Reader:
    """A file in its place in the store; then something that reads it. An input's first three bytes say which file it
    is, which message is looked for, and what reads it."""
    files = _files(*below)
    sound = [path.read_bytes() for path in files]

    def read(data: bytes) -> None:
        which, wanted, how, content = data[:1], data[1:2], data[2:3], data[3:]
        place = int.from_bytes(which) % len(files)
        size = len(sound[place])
        files[place].write_bytes(content.ljust(size, b"\0")[:size])
        try:
            with MessageStore.open(root, config=small_store.CONFIG) as store:
                look = _LOOKS[int.from_bytes(how) % len(_LOOKS)]
                ours_only(functools.partial(look, store, messages[int.from_bytes(wanted) % len(messages)]))
        finally:
            files[place].write_bytes(sound[place])

    samples = [
        bytes((place, 7 * place + how, how)) + data.rstrip(b"\0")
        for place, data in enumerate(sound)
        for how in range(len(_LOOKS))
    ]
    return Reader(samples, read, 10)


_LOOKS: tuple[Callable[[MessageStore, StoredMessage], object], ...] = (
    lambda store, _: list(store.check("full")),
    lambda store, _: list(store.messages(events=Events(damage=lambda _: None))),
    lambda store, one: store.get(one.topic, one.queue_id, one.queue_offset),
    lambda store, one: store.query(one.topic, f"{one.flag:032X}"),
    lambda store, _: store.info(),
    lambda store, _: list(store.offsets(events=Events(damage=lambda _: None))),
    lambda store, _: store.changes(),
    lambda store, _: store.predict(),
    lambda store, _: store.undo(change=ChangeOptions(dry_run=True)),
    lambda store, _: store.recover(change=ChangeOptions(dry_run=True)),
    lambda store, _: list(store.delays(events=Events(damage=lambda _: None))),
)

# what a RocksDB holds, and records of POP: with their checksums, and as they are behind these

ROCKSDB_STORE = "rocksdb-store55"
_ROCKSDB_LOOKS: tuple[Callable[[MessageStore], object], ...] = (
    lambda store: list(store.check()),
    lambda store: list(store.halves(events=Events(damage=lambda _: None))),
    lambda store: list(store.due(events=Events(damage=lambda _: None))),
    lambda store: store.query("Events", "all", scan=True),
    lambda store: store.info(walk_log=False),
)


def _one_of(root: Path, files: list[Path], looks: tuple[Callable[[MessageStore], object], ...]) -> Reader:
    """One of some files of a store in its place; an input's first two bytes say which it is and what reads it."""
    sound = [path.read_bytes() for path in files]

    def read(data: bytes) -> None:
        place = int.from_bytes(data[:1]) % len(files)
        files[place].write_bytes(data[2:])
        try:
            with MessageStore.open(root) as store:
                look = looks[int.from_bytes(data[1:2]) % len(looks)]
                ours_only(functools.partial(look, store))
        finally:
            files[place].write_bytes(sound[place])

    inputs = [bytes((place, how)) + data for place, data in enumerate(sound) for how in range(len(looks))]
    return Reader(inputs, read, 10)


def _rocksdb(root: Path) -> Reader:
    """A file of `rocksdbstore/` in its place."""
    shutil.rmtree(root / "index")  # its keys are in the RocksDB alone
    files = _files(root / "rocksdbstore")
    return _one_of(root, files, _ROCKSDB_LOOKS)


_TIERED_LOOKS: tuple[Callable[[MessageStore], object], ...] = (
    lambda store: list(store.check()),
    lambda store: messages_with_key(tiered_storage(store.files, UNHEARD), "TopicTest", "key1", UNHEARD),
    lambda store: list(tiered_rows(store.files, None, None, UNHEARD)),
    lambda store: store.info(walk_log=False),
    lambda store: store.repair(only=("RMQ-TIER-006", "RMQ-TIER-008"), change=ChangeOptions(dry_run=True)),
)


def _tiered(root: Path) -> Reader:
    """A file of tiered storage, or its table, in its place."""
    folders = [root / "tiered_index_file", root / "config" / TABLE, *root.glob("tiered/*/golden/rmq_sys_INDEX")]
    files = _files(*folders, *root.glob("tiered/*/golden/%DLQ%GroupA"))
    return _one_of(root, files, _TIERED_LOOKS)


def _rocksdb_parts(root: Path) -> list[bytes]:
    """Blocks of tables and edits of the manifest as they are without checksums."""
    database = Database(root / "rocksdbstore")
    tables = [SortedTable(root / "rocksdbstore" / one.name, one.size, Descriptors()) for one in database.tables()]
    blocks = [b"b" + table.block(handle) for table in tables for _, handle in table.blocks]
    edits = [b"e" + record.data for record in RecordReader(database.manifest.path, 0)]
    batch = ROCKSDB_BATCH.struct.pack(7, 2) + b"\1\3key\5value" + b"\5\2\3key\5value" + b"\x0f\1a\1b"
    return [*blocks, *edits, b"w" + batch, b"i" + bytes(8) + b"@Topic@K@key@unique@" + bytes(8)]


def _read_rocksdb_parts(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        match data[:1]:
            case b"b":
                list(block_pairs(data[1:]))
            case b"e":
                list(manifest_edits(data[1:]))
            case b"w":
                list(batch_entries(data[1:]))
            case _:
                index_row(data[1:], bytes(8))
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        list(RecordReader(Path(file.name), 0))


_POP_RECORDS = [
    b'c{"bm":0,"bn":"b","c":"g","d":[0,1,3],"it":60000,"n":3,"pt":17,"q":1,"ro":0,"rp":"0","so":5,"sp":false,"t":"T"}',
    b'a{"ao":5,"bn":"b","c":"g","pt":17,"q":1,"so":5,"t":"T"}',
    b'b{"ao":-1,"aol":[5,6],"bn":"b","c":"g","pt":17,"q":1,"so":5,"t":"T"}',
    b'k{"popTime":17,"groupId":"g","topicId":"T","queueId":1,"retryFlag":0,"invisibleTime":5,"offset":3,"attemptTimes":0}',
    b'o{"o":[5,1],"popTime":17,"i":60000,"cm":1,"l":17,"a":"x","ot":{"5":17},"oc":{"5":1}}',
]


def _read_pop(data: bytes) -> None:
    body = data[1:]
    with contextlib.suppress(RecordError):
        match data[:1]:
            case b"k":
                entry = kv_entry(body)
                doubts_of_entry(entry.key(), entry)
            case b"o":
                ordered_pop(parsed(body))
            case kind:
                tag = {b"c": CHECKPOINT_TAG, b"a": ACK_TAG}.get(kind, BATCH_ACK_TAG)
                record = revive_record(tag, body)
                if record is not None:
                    doubts(record, 17)


def _read_frames(data: bytes) -> None:
    """One after the other, with all that a message says of itself."""
    position = 0
    with contextlib.suppress(FrameDamage):
        while position < len(data):
            message = decode_message(data, position, len(data) - position, None, check_crc=False)
            said = (message.properties, message.born_host, message.store_host, message.message_id)
            assert all(one is not None for one in said)
            ours_only(functools.partial(message.plain_body, 1 << 20))
            position += message.total_size


def _salvage(blob: Path, target: Path, data: bytes) -> None:
    """Whatever the bytes are, what comes out of them is a store in which nothing is wrong but what was in a message
    already, or an error."""
    blob.write_bytes(data)
    try:
        ours_only(lambda: salvage([blob], target, config=small_store.CONFIG))
        _require_sound(target)
    finally:
        shutil.rmtree(target, ignore_errors=True)
        target.with_name(target.name + ".lost-and-found.jsonl").unlink(missing_ok=True)


def _append(folder: Path, data: bytes) -> None:
    """`append --from` with all that it does: what can be stored is, the rest is told."""
    (folder / "input").write_bytes(data)
    config = small_store.CONFIG
    (folder / "broker.conf").write_text(
        f"""mappedFileSizeCommitLog={config.mapped_file_size_commit_log}
mappedFileSizeConsumeQueue={config.mapped_file_size_consume_queue}
maxHashSlotNum={config.max_hash_slot_num}
maxIndexNum={config.max_index_num}
"""
    )
    try:
        given = ("-s", folder / "appended", "-c", folder / "broker.conf", "--create", "--keep-going")
        done = run("append", *given, "--from", folder / "input")
        assert done.code in (exit_codes.OK, exit_codes.USAGE), done
        _require_sound(folder / "appended")
    finally:
        shutil.rmtree(folder / "appended", ignore_errors=True)


def _require_sound(root: Path) -> None:
    if root.exists():
        with MessageStore.open(root, "r", small_store.CONFIG) as store:
            found = {finding.code for finding in store.check() if finding.severity.is_alarm}
            assert found <= _IN_MESSAGES, found


def ours_only(look: Callable[[], object]) -> None:
    """Call it; it may end with an error of ours."""
    with contextlib.suppress(RmqctlError):
        look()


def _check_state(root: Path, path: Path) -> Reader:
    save_state(path, ScrubState("full", None, 5, 7))

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with MessageStore.open(root, config=small_store.CONFIG) as store:
            ours_only(lambda: load_state(path, "full", None))
            ours_only(lambda: list(store.check("full", resume=path)))

    return Reader([path.read_bytes()], read, 100)


def _read_configuration(checkpoint: Path, data: bytes) -> None:
    ours_only(lambda: parse_config_json(data.decode(errors="surrogateescape")))
    checkpoint.write_bytes(data)
    ours_only(lambda: read_checkpoint(checkpoint))


def _unpack(data: bytes) -> None:
    for kind in range(5):
        ours_only(functools.partial(decompress, data, kind, 1 << 20))


def _texts(root: Path, message_id: str) -> Reader:
    samples = ("2024-02-29T23:59:59.999Z", "yesterday 17:00", "3d4h", "-2h", "1700000000000", message_id)

    def read(data: bytes) -> None:
        text = data.decode(errors="replace")
        with MessageStore.open(root, config=small_store.CONFIG) as store:
            for parse in (parse_time, parse_span, store.lookup, store.find):
                ours_only(functools.partial(parse, text))

    return Reader([sample.encode() for sample in samples], read, 60)


def _lines() -> bytes:
    line = {"topic": "T", "body": "x", "properties": {"a": "b"}, "queue_id": 3, "born_timestamp": 17, "tags": "t"}
    return b"".join(json.dumps(line | {"keys": str(number)}).encode() + b"\n" for number in range(20))


def _tables(rows: pyarrow.Table) -> list[bytes]:
    """Little, all that `export` writes, and what others write, each as both kinds of file."""
    little = pyarrow.table({"topic": ["T"] * 30, "body": [b"x"] * 30, "queue_id": list(range(30))})
    times = pyarrow.array([17, 1_700_000_000], pyarrow.timestamp("s"))
    columns = {"topic": pyarrow.array(["T", "U"]).dictionary_encode(), "body": ["x", "y"], "born_timestamp": times}
    found = []
    for table in (little, rows, pyarrow.table(columns | {"keys": [["a", "b"], None]})):
        parquet, arrow = io.BytesIO(), io.BytesIO()
        pyarrow.parquet.write_table(table, parquet)
        with pyarrow.ipc.new_file(arrow, table.schema) as writer:
            writer.write_table(table)
        found += [parquet.getvalue(), arrow.getvalue()]
    return found


def _read_input(opened: MessageStore, data: bytes) -> None:
    """What `append` does before it stores anything, as columns and as messages; new ones and copies."""
    for as_stored in (False, True):
        with message_source(io.BytesIO(data), once=False, unique_keys=False) as source:
            for piece in source.pieces(as_stored=as_stored):
                if not isinstance(piece.content, list):
                    ours_only(functools.partial(opened.check_columns, piece.content, as_stored=as_stored))
                read = piece.plain() if piece.plain is not None else piece
                assert isinstance(read.content, list)
                opened.check_many(read.content, as_stored=as_stored)


def _frame() -> bytes:
    return encode_frame(RemotingCommand(code=10, opaque=7, fields={"topic": "T", "queueId": "0"}, body=_BODY))


def _read_wire(data: bytes) -> None:
    decoder = FrameDecoder(1 << 20)
    decoder.feed(data)
    while decoder.next_command() is not None:
        pass


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` inputs, all readers all the time, each for about as long."""
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="rmqctl-fuzz-"))
        all_readers = opened.enter_context(readers(Path(folder)))
        longest = max(reader.turns for reader in all_readers.values())
        # a reader of half the turns has every second one
        turns = [
            name for turn in range(longest) for name, reader in all_readers.items()
            if turn * reader.turns // longest != (turn - 1) * reader.turns // longest
        ]  # fmt: skip
        for number in range(count):
            name = turns[number % len(turns)]
            yield f"{name}-{number}", functools.partial(_try, all_readers[name], f"{seed}-{number}")


def _try(reader: Reader, named: str, _: Path) -> None:
    rng = random.Random(named)
    within_limits(reader, mutated(rng.choice(reader.samples), rng))


def within_limits(reader: Reader, data: bytes, seconds: float = _MOST_SECONDS) -> None:
    """Let it read. AssertionError if that takes too much of the processor or of memory; what is not told by an error of
    ours comes out as it is."""
    begun, most = time.process_time(), _most_memory()
    ours_only(lambda: reader.read(data))
    spent = time.process_time() - begun
    assert spent < seconds, f"{spent:.1f} seconds of processor time"
    assert _most_memory() - most < _MOST_BYTES, f"{_most_memory() - most:,} bytes more"


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
