"""Writes large stores fast: the frames of one message, copied and patched as arrays. Both sides measure on them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.formats.layouts import BLANK_FRAME, BLANK_MAGIC, FRAME_HEADS
from rmqctl.formats.message import LOCAL_HOST, Message, frame_bytes, prepare_frame
from rmqctl.store import MessageStore, StoreConfig

if TYPE_CHECKING:
    import pyarrow

GIGABYTE = 1_000_000_000
FILE_SIZE = 1 << 30
"""RocketMQ's default size of a commitlog file."""

TOPIC = "BenchTopic"
QUEUES = 8
BODIES = {"small": 172, "large": 1024}
"""Body sizes in bytes; the frames have about 340 bytes and 1.2 KB."""
_ORDER = '{"order": 4711, "customer": "Jürgen", "state": "paid", "note": "'
TEXT_BODY = (_ORDER.encode() + b"to be sent soon; " * 20)[:298] + b'"}'
"""300 bytes as many producers send them: JSON, not all of it ASCII."""

_START_MS = 1_700_000_000_000
_ROWS = 20_000
_DIGITS = 8
_KEY_BASE = 10_000_000
_UNIQUE_PREFIX = "7F00000100002A9F"
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_HEX_DIGITS = 16


class BenchStore(NamedTuple):
    """A store on disk with nothing but a commitlog. `bytes` are those of its messages, blank frames aside."""

    name: str
    path: Path
    messages: int
    bytes: int
    files: tuple[str, ...]

    def reset(self, *, crashed: bool = False) -> None:
        """Take away everything but the commitlog; with `crashed` leave the marker of a store that was not closed."""
        for entry in self.path.iterdir():
            if entry.name == "commitlog":
                for file in entry.iterdir():
                    if file.name not in self.files:
                        file.unlink()
            elif entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        shutil.rmtree(self.path.with_name(self.path.name + ".rmqctl"), ignore_errors=True)
        if crashed:
            (self.path / "abort").touch()


def unique_key(number: int) -> str:
    """The unique key of message `number`."""
    return f"{_UNIQUE_PREFIX}{number:0{_HEX_DIGITS}X}"


def key(number: int) -> str:
    """The key of message `number`."""
    return f"k{_KEY_BASE + number}"


def message(number: int, body: bytes) -> Message:
    """Message `number`: a key, a tag and a unique key, as a producer sends it."""
    properties = {"KEYS": key(number), "TAGS": "TagA", "UNIQ_KEY": unique_key(number)}
    return Message(TOPIC, body, number % QUEUES, properties=properties)


def columns(first: int, count: int, body: bytes) -> pyarrow.RecordBatch:
    """The messages [first, first + count) as Arrow columns."""
    import pyarrow as pa

    numbers = range(first, first + count)
    properties = [[("KEYS", key(one)), ("TAGS", "TagA"), ("UNIQ_KEY", unique_key(one))] for one in numbers]
    return pa.record_batch(
        {
            "topic": pa.array([TOPIC] * count).dictionary_encode(),
            "queue_id": pa.array([one % QUEUES for one in numbers], pa.int32()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
            "body": pa.array([body] * count, pa.binary()),
        }
    )


def write_store(folder: Path, kind: str, size: int, name: str | None = None, body: bytes | None = None) -> BenchStore:
    """A store of about `size` bytes of messages of a kind of BODIES, or with this body, in files of RocketMQ's default
    size."""
    path = folder / (name or kind)
    (path / "commitlog").mkdir(parents=True)
    random = np.random.default_rng(1)
    physical_offset = number = written = 0
    files = []
    while written < size:
        files.append(f"{physical_offset:020d}")
        with (path / "commitlog" / files[-1]).open("wb") as file:
            file.truncate(FILE_SIZE)
            position = 0
            while written < size:
                frame = _frame(number, random.bytes(BODIES[kind]) if body is None else body)
                fitting = (FILE_SIZE - position - BLANK_FRAME.size) // len(frame)
                rows = min(_ROWS, fitting, -(-(size - written) // len(frame)))
                if rows <= 0:
                    file.write(BLANK_FRAME.struct.pack(FILE_SIZE - position, BLANK_MAGIC))
                    break
                file.write(_frames(frame, number, rows, physical_offset + position).tobytes())
                position += rows * len(frame)
                written += rows * len(frame)
                number += rows
        physical_offset += FILE_SIZE
    return BenchStore(path.name, path, number, written, tuple(files))


def put_store(
    folder: Path, name: str, messages: int, topics: int, body_size: int, config: StoreConfig | None = None
) -> BenchStore:
    """A store as a broker leaves it, queues and index included: `topics` that take turns, keys as those of `key` and
    `unique_key`."""
    import pyarrow as pa

    path = folder / name
    random = np.random.default_rng(1)
    with MessageStore.open(path, "rw", config, create=True) as store:
        for first in range(0, messages, _ROWS):
            count = min(_ROWS, messages - first)
            batch = columns(first, count, b"")
            numbers = range(first, first + count)
            # half as dense as random bytes, as what producers send
            bodies = [random.bytes(body_size // 2).hex().encode() for _ in numbers]
            made = {
                "topic": pa.array([f"{TOPIC}{one % topics}" for one in numbers]),
                "queue_id": pa.array([one // topics % QUEUES for one in numbers], pa.int32()),
                "properties": batch.column("properties"),
                "body": pa.array(bodies, pa.binary()),
            }
            result = store.put_columns(pa.record_batch(made))
            if result.stored != count:
                raise RuntimeError(f"{name}: only {result.stored} of {count} messages were stored")
    files = tuple(sorted(file.name for file in (path / "commitlog").iterdir()))
    return BenchStore(name, path, messages, int(result.physical_offset[-1]), files)


def _frame(number: int, body: bytes) -> bytes:
    return frame_bytes(prepare_frame(message(number, body), LOCAL_HOST, _START_MS), 0, 0, _START_MS)


def _frames(frame: bytes, first: int, rows: int, physical_offset: int) -> NDArray[np.uint8]:
    """`rows` copies of `frame`, each with the numbers and keys of its own place."""
    copies = np.tile(np.frombuffer(frame, np.uint8), (rows, 1))
    numbers = np.arange(first, first + rows)
    times = _START_MS + numbers // 100
    head = FRAME_HEADS[0]
    _patch(copies, head.offset("queue_id"), numbers % QUEUES, ">i4")
    _patch(copies, head.offset("queue_offset"), numbers // QUEUES, ">i8")
    _patch(copies, head.offset("physical_offset"), physical_offset + np.arange(rows) * len(frame), ">i8")
    _patch(copies, head.offset("born_timestamp"), times, ">i8")
    _patch(copies, head.offset("store_timestamp"), times, ">i8")
    at = frame.index(key(first).encode()) + 1
    for place in range(_DIGITS):
        copies[:, at + _DIGITS - 1 - place] = ord("0") + (_KEY_BASE + numbers) // 10**place % 10
    at = frame.index(_UNIQUE_PREFIX.encode()) + len(_UNIQUE_PREFIX)
    for place in range(_HEX_DIGITS - 1):
        copies[:, at + _HEX_DIGITS - 1 - place] = _HEX[(numbers >> 4 * place) & 15]
    return copies


def _patch(copies: NDArray[np.uint8], offset: int, values: NDArray[np.int64], kind: str) -> None:
    fields = np.ascontiguousarray(values.astype(kind)).view(np.uint8).reshape(len(copies), -1)
    copies[:, offset : offset + fields.shape[1]] = fields
