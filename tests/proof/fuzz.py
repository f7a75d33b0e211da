"""Bytes that nobody wrote, for everything that reads: nothing but an error of ours comes out, soon, in bounded memory.

What is fed begins as something sound, which is then cut, repeated, overwritten and spliced by lot. One case is a
reader and a number; together with the seed they make the same bytes again.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from rmqctl.formats.compression import compress, decompress
from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import RmqctlError
from rmqctl.messages.message_source import message_source
from rmqctl.network.remoting.command import RemotingCommand
from rmqctl.network.remoting.frames import FrameDecoder, encode_frame
from rmqctl.output.times import parse_span, parse_time
from rmqctl.store.check.scrub import ScrubState, load_state, save_state
from rmqctl.store.checkpoint import read_checkpoint
from rmqctl.store.message_store import MessageStore
from tests.proof import small_store
from tests.proof.proving import Case

_MOST_SECONDS = 10.0
_MOST_BYTES = 256 << 20
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


class Corpus:
    """What the readers begin with: a store with a journal, and a sample of each other input."""

    def __init__(self, folder: Path) -> None:
        self.messages = small_store.make(folder)
        self.root = folder / "store"
        with MessageStore.open(self.root, config=small_store.CONFIG) as store:
            store.truncate(self.messages[40].physical_offset)
        save_state(folder / "state", ScrubState("full", None, 5, 7))
        self.state = (folder / "state").read_bytes()
        plain = b"body " * 200
        self.packed = [compress(plain, kind) for kind in (1, 2, 3)]
        line = {"topic": "T", "body": "x", "properties": {"a": "b"}, "queue_id": 3, "born_timestamp": 17, "tags": "t"}
        self.lines = b"".join(json.dumps(line | {"keys": str(number)}).encode() + b"\n" for number in range(20))
        table = pyarrow.table({"topic": ["T"] * 30, "body": [b"x"] * 30, "queue_id": list(range(30))})
        parquet, arrow = io.BytesIO(), io.BytesIO()
        pyarrow.parquet.write_table(table, parquet)
        with pyarrow.ipc.new_file(arrow, table.schema) as writer:
            writer.write_table(table)
        self.tables = parquet.getvalue(), arrow.getvalue()
        command = RemotingCommand(code=10, opaque=7, fields={"topic": "T", "queueId": "0"}, body=plain)
        self.frame = encode_frame(command)

    def files(self, *below: str) -> list[Path]:
        """The files below folders beside the store, or in it."""
        found = itertools.chain.from_iterable((self.root.parent / name).rglob("*") for name in below)
        return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _in_store(corpus: Corpus, rng: random.Random, _: Path, *below: str) -> None:
    """A changed file in its place in the store; then everything that reads it."""
    path = rng.choice(corpus.files(*below))
    before, times = path.read_bytes(), path.stat()
    path.write_bytes(mutated(before.rstrip(b"\0"), rng).ljust(times.st_size, b"\0")[: times.st_size])
    try:
        _look_at_all(corpus, rng.choice(corpus.messages))
    finally:
        path.write_bytes(before)


def _look_at_all(corpus: Corpus, one: object) -> None:
    with MessageStore.open(corpus.root, config=small_store.CONFIG) as store:
        for look in (
            lambda: list(store.check("full")),
            lambda: list(store.messages(on_damage=lambda _: None)),
            lambda: store.get(one.topic, one.queue_id, one.queue_offset),  # type: ignore[attr-defined]
            lambda: store.query(one.topic, f"{one.flag:032X}"),  # type: ignore[attr-defined]
            store.info,
            lambda: list(store.offsets(on_damage=lambda _: None)),
            store.changes,
            store.predict,
            lambda: store.undo(dry_run=True),
            lambda: store.recover(dry_run=True),
        ):
            _ours_only(look)


def _ours_only(look: Callable[[], object]) -> None:
    with contextlib.suppress(RmqctlError):
        look()


def _state(corpus: Corpus, rng: random.Random, folder: Path) -> None:
    path = folder / "state"
    path.write_bytes(mutated(corpus.state, rng))
    with MessageStore.open(corpus.root, config=small_store.CONFIG) as store:
        _ours_only(lambda: load_state(path, "full", None))
        _ours_only(lambda: list(store.check("full", resume=path)))


def _config(corpus: Corpus, rng: random.Random, folder: Path) -> None:
    path = rng.choice(corpus.files("store/config"))
    data = mutated(path.read_bytes(), rng)
    _ours_only(lambda: parse_config_json(data.decode(errors="surrogateescape")))
    (folder / "checkpoint").write_bytes(data)
    _ours_only(lambda: read_checkpoint(folder / "checkpoint"))


def _packed(corpus: Corpus, rng: random.Random, _: Path) -> None:
    data = mutated(rng.choice(corpus.packed), rng)
    for kind in range(5):
        _ours_only(lambda kind=kind: decompress(data, kind, 1 << 20))  # type: ignore[misc]


def _texts(corpus: Corpus, rng: random.Random, _: Path) -> None:
    samples = (
        "2024-02-29T23:59:59.999Z",
        "yesterday 17:00",
        "3d4h",
        "-2h",
        "1700000000000",
        corpus.messages[3].message_id,
    )
    text = mutated(rng.choice(samples).encode(), rng).decode(errors="replace")
    with MessageStore.open(corpus.root, config=small_store.CONFIG) as store:
        for parse in (parse_time, parse_span, store.lookup, store.find):
            _ours_only(lambda parse=parse: parse(text))  # type: ignore[misc]


def _input(corpus: Corpus, rng: random.Random, _: Path, *samples: bytes) -> None:
    data = mutated(rng.choice(samples or (corpus.lines,)), rng)
    with message_source(io.BytesIO(data), once=False, unique_keys=False) as source:
        for piece in source.pieces(as_stored=False):
            if piece.plain is not None:
                piece.plain()


def _wire(corpus: Corpus, rng: random.Random, _: Path) -> None:
    decoder = FrameDecoder(1 << 20)
    decoder.feed(mutated(corpus.frame * 2, rng))
    while decoder.next_command() is not None:
        pass


READERS: dict[str, Callable[..., None]] = {
    "log": _in_store,
    "queues-and-index": _in_store,
    "configuration": _in_store,
    "journal": _in_store,
    "check-state": _state,
    "config-json": _config,
    "compression": _packed,
    "ids-and-times": _texts,
    "lines": _input,
    "tables": _input,
    "wire": _wire,
}
_BELOW = {
    "log": ("store/commitlog",),
    "queues-and-index": ("store/consumequeue", "store/consumequeue_ext", "store/index"),
    "configuration": ("store/config",),
    "journal": ("store.rmqctl",),
}


_TURNS = {
    "check-state": 100,
    "config-json": 100,
    "compression": 200,
    "ids-and-times": 60,
    "lines": 200,
    "tables": 200,
    "wire": 200,
}
"""How many inputs a reader gets while one that looks at a whole store gets one: in about the same time."""


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` inputs, all readers all the time, each for about as long."""
    weights = [_TURNS.get(name, 1) for name in READERS]
    longest = max(weights)
    # a reader of half the weight has every second turn
    turns = [
        name for turn in range(longest) for name, weight in zip(READERS, weights, strict=True)
        if turn * weight // longest != (turn - 1) * weight // longest
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="rmqctl-fuzz-") as folder:
        corpus = Corpus(Path(folder))
        for number in range(count):
            name = turns[number % len(turns)]
            yield f"{name}-{number}", functools.partial(_try, corpus, name, f"{seed}-{number}")


def _try(corpus: Corpus, name: str, named: str, folder: Path) -> None:
    rng = random.Random(named)
    more = _BELOW.get(name, corpus.tables if name == "tables" else ())
    begun, most = time.process_time(), _most_memory()
    _ours_only(lambda: READERS[name](corpus, rng, folder, *more))
    spent = time.process_time() - begun
    assert spent < _MOST_SECONDS, f"{spent:.1f} seconds of processor time"
    assert _most_memory() - most < _MOST_BYTES, f"{_most_memory() - most:,} bytes more"


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
