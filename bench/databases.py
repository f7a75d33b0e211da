"""Looking at a store with its queues in a RocksDB, beside the same queues in files.

RocksDB writes the database with the options of RocketMQ (ConfigHelper, RocksDBOptionsFactory#createCQCFOptions).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.measure import Measurement, in_turns, times
from bench.stores import QUEUES, TOPIC, BenchStore, key, write_store
from rmqctl.formats.layouts import CONSUMEQUEUE_UNIT

_UNITS = 10_000_000
_FRAME = 180
_UNIT = CONSUMEQUEUE_UNIT.size
_UNIT_FIELDS = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_ROWS_OF_A_BATCH = 20_000
_MIB = 1 << 20


def beside_files(folder: Path, scale: float) -> Iterator[Measurement]:
    """Processor seconds and peaks of memory of commands on both stores."""
    files = write_store(folder, "small", int(_UNITS * _FRAME * scale), "in-files", b"x")
    _run("rebuild", "-y", store=files.path)
    database = folder / "in-rocksdb"
    shutil.copytree(files.path, database, copy_function=os.link, ignore=shutil.ignore_patterns("consumequeue"))
    write_database(files.path, database / "consumequeue")
    for command in _commands(files):
        peaks: dict[Path, float] = {files.path: 0.0, database: 0.0}

        def used(store: Path, command: tuple[str, ...] = command, peaks: dict[Path, float] = peaks) -> float:
            seconds, peak = _run(*command, store=store)
            peaks[store] = max(peaks[store], peak)
            return seconds

        pair = in_turns(lambda: used(database), lambda: used(files.path))
        name = f"rocksdb-{command[0]}-{files.messages}"
        yield times(name, pair, "processor time; the same units in files", 0.5, 1)
        yield Measurement(
            f"{name}-memory", peaks[database], peaks[files.path], None, "MiB", pair.n,
            "units in files; stay under", at_least=256, aim=256,
        )  # fmt: skip


def _commands(store: BenchStore) -> Iterator[tuple[str, ...]]:
    yield ("check",)
    yield ("ls",)
    yield (
        "cat",
        "-t",
        TOPIC,
        "-q",
        "0",
        "--order",
        "queue",
        "-n",
        "100000",
        "--columns",
        "queue_offset",
        "--format",
        "csv",
    )
    yield ("groups",)
    yield ("query", "-t", TOPIC, "-k", key(store.messages // 2))


# a child begins with the peak of who starts it: that has to be small
_STARTER = """
import os, sys
silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=silence), 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def _run(*command: str, store: Path) -> tuple[float, float]:
    """Return the processor seconds and the MiB of memory that a command took."""
    arguments = [sys.executable, "-m", "rmqctl", *command, "-s", str(store)]
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, *arguments]
    done = subprocess.run(starter, capture_output=True, text=True, check=True)
    code, seconds, kibibytes = done.stdout.split()
    if code not in ("0", "1"):
        raise RuntimeError(f"{command} ended with {code}: {done.stderr[-2000:]}")
    return float(seconds), int(kibibytes) * 1024 / _MIB


def write_database(store: Path, folder: Path) -> None:
    """Write the units of a store's queues in files into a new database."""
    import rocksdict

    tables = rocksdict.BlockBasedOptions()
    tables.set_block_size(32 << 10)
    tables.set_format_version(5)
    tables.set_checksum_type(rocksdict.ChecksumType.crc32c())
    tables.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_bottommost_compression_type(rocksdict.DBCompressionType.zstd())
    options.set_write_buffer_size(128 << 20)
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    database = rocksdict.Rdict(str(folder), options, {"offset": options})
    ends = database.get_column_family("offset")
    last = 0
    name = TOPIC.encode()
    head = len(name).to_bytes(4, "big") + b"\1" + name + b"\1"
    paths = sorted((store / "consumequeue" / TOPIC).glob("*/*"), key=lambda path: path.name)
    # queues take turns, as messages of a producer do
    for path in paths:
        queue_id, first, units = int(path.parent.name), int(path.name) // _UNIT, path.read_bytes()
        slots = int((np.frombuffer(units, _UNIT_FIELDS)["size"] > 0).sum())
        prefix = head + queue_id.to_bytes(4, "big") + b"\1"
        _put_units(database, prefix, units[: slots * _UNIT], first)
        offset, size, _ = CONSUMEQUEUE_UNIT.struct.unpack_from(units, (slots - 1) * _UNIT)
        end_key = head + b"max\1" + queue_id.to_bytes(4, "big")
        ends[end_key] = offset.to_bytes(8, "big") + (first + slots - 1).to_bytes(8, "big")
        last = max(last, offset + size)
    name = b"CHECKPOINT_TOPIC"
    ends[len(name).to_bytes(4, "big") + b"\1" + name + b"\1max\1" + bytes(4)] = last.to_bytes(8, "big")
    database.flush()
    ends.flush()
    database.close()


def _put_units(database: object, prefix: bytes, units: bytes, first: int) -> None:
    import rocksdict

    slots = len(units) // _UNIT
    times = 1_700_000_000_000
    for begin in range(0, slots, _ROWS_OF_A_BATCH):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for at in range(begin, min(begin + _ROWS_OF_A_BATCH, slots)):
            number = (first + at) * QUEUES + int.from_bytes(prefix[-5:-1], "big")
            value = units[at * _UNIT : (at + 1) * _UNIT] + (times + number // 100).to_bytes(8, "big")
            batch.put(prefix + (first + at).to_bytes(8, "big"), value)
        database.write(batch)  # type: ignore[attr-defined]
