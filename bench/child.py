"""Runs one piece of work in a process of its own and says how long it took and how much memory it needed.

`python -m bench.child WORK STORE [COUNT BODY_SIZE]` is that process; `run` starts it and watches its memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_LOOKS_PER_SECOND = 50
_CHUNK = 1000
_WARM_UP = 20_000
# what is compiled is loaded by then
_BULK_WARM_UP = 40_000
_ROWS = 20_000


class Outcome(NamedTuple):
    """`seconds` of the work itself; `drained` until queues and index are complete, too; `messages` it was about.

    `anonymous`: the most memory in bytes beyond mapped files; `resident`: the most memory, mapped files included.
    """

    seconds: float
    drained: float
    messages: int
    anonymous: int = 0
    resident: int = 0


def run(work: str, store: Path, *arguments: object, **environment: str) -> Outcome:
    """Do `work` (see WORKS) on `store` in a new process; RuntimeError with what it said if it fails."""
    command = [sys.executable, "-m", "bench.child", work, str(store), *map(str, arguments)]
    # as rmqctl/start.py has it
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, **environment}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        most = 0
        try:
            while process.poll() is None:
                most = max(most, _anonymous(process.pid))
                time.sleep(1 / _LOOKS_PER_SECOND)
        except BaseException:
            process.kill()
            raise
        output, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{work} ended with {process.returncode}: {errors[-2000:]}")
    return Outcome(**json.loads(output))._replace(anonymous=most)


def _anonymous(process_id: int) -> int:
    """Bytes of memory of a process that no file stands behind; 0 once it is gone."""
    return _status(f"/proc/{process_id}/status", "RssAnon:", "RssShmem:")


def _status(path: str, *names: str) -> int:
    """The sum in bytes of some lines of a status file."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return sum(int(words[1]) * 1024 for line in text.splitlines() if (words := line.split())[0] in names)


def _timed(work: Callable[[], int]) -> Outcome:
    """The time of `work` alone. Starting Python and loading what is compiled does not count, nor does, on the other
    side, the start of the JVM."""
    begin = time.perf_counter()
    messages = work()
    seconds = time.perf_counter() - begin
    return Outcome(seconds, seconds, messages)


def _check(store: Path) -> Outcome:
    from rmqctl.store.log.parallel import check_log
    from rmqctl.store.store_files import StoreFiles

    with StoreFiles(store) as files:
        return _timed(lambda: check_log(files.log, threads=2).messages)


def _scan(store: Path) -> Outcome:
    from rmqctl.store.log.column_walk import walk_columns
    from rmqctl.store.log.columns import MessageColumns
    from rmqctl.store.native.tables import Columns
    from rmqctl.store.store_files import StoreFiles

    with StoreFiles(store) as files:
        records = walk_columns(files.log, columns=Columns.ALL)
        return _timed(lambda: sum(one.rows for one in records if isinstance(one, MessageColumns)))


def _recover(store: Path) -> Outcome:
    from rmqctl.store.recover.recover import recover
    from rmqctl.store.store_files import StoreFiles

    with StoreFiles(store) as files:
        return _timed(lambda: recover(files).messages)


def _rebuild(store: Path) -> Outcome:
    from rmqctl.store.recover.rebuild import rebuild
    from rmqctl.store.store_files import StoreFiles

    with StoreFiles(store) as files:
        return _timed(lambda: rebuild(files).messages)


def _put(store: Path, count: int, body_size: int) -> Outcome:
    from bench.stores import message
    from rmqctl.store import MessageStore

    body = bytes(range(256)) * (body_size // 256 + 1)
    with MessageStore.open(store, "rw", create=True) as opened:
        for number in range(_WARM_UP):
            opened.put(message(number, body[:body_size]))
        opened.wait_for_dispatch()
        messages = [message(number, body[:body_size]) for number in range(_WARM_UP, _WARM_UP + count)]
        begin = time.perf_counter()
        for one in messages:
            opened.put(one)
        seconds = time.perf_counter() - begin
        opened.wait_for_dispatch()
        return Outcome(seconds, time.perf_counter() - begin, count)


def _put_many(store: Path, count: int, body_size: int) -> Outcome:
    from bench.stores import message
    from rmqctl.store import MessageStore

    body = bytes(range(256)) * (body_size // 256 + 1)
    messages = [message(number, body[:body_size]) for number in range(_BULK_WARM_UP + count)]
    with MessageStore.open(store, "rw", create=True) as opened:
        for first in range(0, _BULK_WARM_UP, _CHUNK):
            opened.put_many(messages[first : first + _CHUNK])
        opened.wait_for_dispatch()
        begin = time.perf_counter()
        for first in range(_BULK_WARM_UP, len(messages), _CHUNK):
            opened.put_many(messages[first : first + _CHUNK])
        seconds = time.perf_counter() - begin
        opened.wait_for_dispatch()
        return Outcome(seconds, time.perf_counter() - begin, count)


def _put_columns(store: Path, count: int, body_size: int) -> Outcome:
    from bench.stores import columns
    from rmqctl.store import MessageStore

    body = (bytes(range(256)) * (body_size // 256 + 1))[:body_size]
    end = _BULK_WARM_UP + count
    batches = [columns(first, min(_ROWS, end - first), body) for first in range(0, end, _ROWS)]
    warm_up = _BULK_WARM_UP // _ROWS
    with MessageStore.open(store, "rw", create=True) as opened:
        for batch in batches[:warm_up]:
            opened.put_columns(batch)
        opened.wait_for_dispatch()
        begin = time.perf_counter()
        for batch in batches[warm_up:]:
            opened.put_columns(batch)
        seconds = time.perf_counter() - begin
        opened.wait_for_dispatch()
        return Outcome(seconds, time.perf_counter() - begin, count)


WORKS: dict[str, Callable[..., Outcome]] = {
    "check": _check,
    "scan": _scan,
    "recover": _recover,
    "rebuild": _rebuild,
    "put": _put,
    "put_many": _put_many,
    "put_columns": _put_columns,
}


def main(arguments: list[str]) -> int:
    """Do what the arguments say and print the outcome as JSON."""
    work, store, *numbers = arguments
    outcome = WORKS[work](Path(store), *map(int, numbers))
    # not ru_maxrss: that is inherited from whoever started the process
    resident = _status("/proc/self/status", "VmHWM:")
    print(json.dumps(outcome._replace(resident=resident)._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
