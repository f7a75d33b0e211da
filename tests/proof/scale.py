"""A store far larger than what is in it: 100 files of 1 GiB, very many queues, one that is long. What looks at such a
store costs what there is to see, not what the files could hold."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow

from rmqctl.formats.layouts import BLANK_FRAME
from rmqctl.formats.message import parse_host
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import file_name
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import ChangeOptions
from tests.formats.frames import frame_of, new_message
from tests.processes import start
from tests.proof.proving import Case

FILES = 100
FILE_SIZE = 1 << 30
_LONG = 10
_QUEUES_OF_A_TOPIC = 1000
_AT_ONCE = 20_000
_BLANK_MAGIC = 0xCBD43194
_CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=20_000, timer_wheel_enable=False
)
# getrusage would say the memory of whoever started it, if that is more
_RUN = """
import atexit, pathlib, runpy, sys
def tell(place=pathlib.Path(sys.argv.pop(1))):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    place.write_text(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
atexit.register(tell)
runpy.run_module("rmqctl", run_name="__main__", alter_sys=True)
"""
_HOST = parse_host("10.0.0.1:10911")
_MOST_SECONDS_A_QUEUE = 0.01
_START_SECONDS = 20
_MOST_MEMORY = 1 << 30


class Cost(NamedTuple):
    """What a command took: seconds of processor time, and bytes of memory at most."""

    seconds: float
    memory: int


FIGURES: dict[str, Cost] = {}
"""What each command took when it was last tried here."""


def cases(_: int, count: int) -> Iterator[Case]:
    """Each command on a store of `count` queues, and one that is ten times as long."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-scale-") as folder:
        root = Path(folder) / "store"
        make(root, count)
        for name, (arguments, is_right) in _verbs(count).items():
            yield name, functools.partial(_try, root, name, arguments, is_right, count)


def make(root: Path, queues: int) -> None:
    """Every file but the last has one message and is blank from there on; the last one has all the others."""
    (root / "commitlog").mkdir(parents=True)
    for number in range(FILES):
        begin = number * FILE_SIZE
        message = new_message(topic="Sparse", body=b"far apart", properties={"KEYS": f"file-{number}"})
        frame = frame_of(message, _HOST, queue_offset=number, physical_offset=begin)
        with (root / "commitlog" / file_name(begin)).open("wb") as file:
            file.truncate(FILE_SIZE)
            file.write(frame)
            if number + 1 < FILES:
                file.write(BLANK_FRAME.struct.pack(FILE_SIZE - len(frame), _BLANK_MAGIC))
    with MessageStore.open(root, config=_CONFIG) as store:
        store.recover(change=ChangeOptions(keep_undo=False))
    with MessageStore.open(root, "rw", _CONFIG) as store:
        for begin in range(0, queues, _AT_ONCE):
            numbers = range(begin, min(begin + _AT_ONCE, queues))
            _put(
                store,
                [f"T{number // _QUEUES_OF_A_TOPIC}" for number in numbers],
                [n % _QUEUES_OF_A_TOPIC for n in numbers],
            )
        for begin in range(0, queues * _LONG, _AT_ONCE):
            rows = min(_AT_ONCE, queues * _LONG - begin)
            _put(store, ["Long"] * rows, [0] * rows)
    (root / "config").mkdir(exist_ok=True)
    (root / "config/consumerOffset.json").write_text('{"offsetTable":{"Long@readers":{0:5},"T0@readers":{0:0,1:1}}}')


def _put(store: MessageStore, topics: list[str], queue_ids: list[int]) -> None:
    columns = {"topic": topics, "queue_id": queue_ids, "body": ["x"] * len(topics)}
    assert store.put_columns(pyarrow.RecordBatch.from_pydict(columns)).stored == len(topics)


def _verbs(queues: int) -> dict[str, tuple[list[str], Callable[[str], bool]]]:
    """Name -> arguments without the store, and whether its answer is right."""
    messages = FILES + queues + queues * _LONG
    return {
        "info": (["info", "--json"], lambda told: str(messages) in told),
        "check --quick": (["check", "--quick", "--json"], lambda told: '"severity": "error"' not in told),
        "query by key": (
            ["query", "--topic", "Sparse", "--key", "file-42", "--json"],
            lambda told: str(42 * FILE_SIZE) in told,
        ),
        "query by queue": (
            ["query", "--topic", "Long", "--queue", "0", "--offset", str(queues * _LONG - 1), "--json"],
            lambda told: '"Long"' in told,
        ),
        "clean --dry-run": (["clean", "--dry-run", "--json"], bool),
        "du --quick": (["du", "--quick", "--json"], lambda told: '"Long"' in told),
        "groups": (["groups", "--json"], lambda told: '"readers"' in told),
    }


def _try(
    root: Path, name: str, arguments: list[str], is_right: Callable[[str], bool], queues: int, folder: Path
) -> None:
    verb, *more = arguments
    with (folder / "told").open("w+b") as told:
        process = start(
            [sys.executable, "-c", _RUN, str(folder / "memory"), verb, "-s", str(root), *more],
            stdout=told,
            seconds=3600,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    answer = (folder / "told").read_text()
    cost = FIGURES[name] = Cost(used.ru_utime + used.ru_stime, int((folder / "memory").read_text()) << 10)
    print(f"scale {name}: {cost.seconds:.1f} s, {cost.memory >> 20} MiB, {len(answer):,} bytes told", file=sys.stderr)
    assert process.returncode in (0, 1), f"exit code {process.returncode}"
    for line in answer.splitlines()[:1]:
        assert json.loads(line if line.endswith("}") else answer) is not None
    assert is_right(answer), answer[:500]
    assert cost.seconds < _START_SECONDS + queues * _MOST_SECONDS_A_QUEUE, cost
    assert cost.memory < _MOST_MEMORY, cost
