"""A stream whose driver is killed again and again over two stores that are written to, of which one is cut back and
recovered.

`python -m tests.pipeline.stream_soak FOLDER ROUNDS` for a proof by hand: every round costs a JVM. It ends with an error
if a message is missing, or came twice although nothing was cut off in its store.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from rmqctl.pipeline.spark.session import spark_session
from rmqctl.store.message_store import MessageStore
from tests.pipeline.source.test_stream_changed import Query, Writing
from tests.processes import start
from tests.store.write.writing import SMALL

_PATIENCE = 240


def stores(folder: Path) -> str:
    """The pattern that names the stores of a proof."""
    return str(folder / "broker-*")


def _query(folder: Path, *, available_now: bool) -> None:
    with spark_session("local[2]") as session:
        query = Query(session, folder, stores(folder))
        running = query.start(available_now=available_now, on_changed_log="fork")
        running.awaitTermination(_PATIENCE)
        if available_now:
            for key, times in query.read().items():
                print(key, times)


def _command(folder: Path, what: str) -> list[str]:
    return [sys.executable, "-m", "tests.pipeline.stream_soak", str(folder), what]


def _commits(folder: Path) -> int:
    return sum(path.name.isdigit() for path in (folder / "checkpoint" / "commits").glob("*"))


def killed_in_mid_batch(folder: Path, dice: random.Random) -> int:
    """Run a driver until it has committed something, and kill it and its JVM; returns how many batches it did."""
    before = _commits(folder)
    process = start(_command(folder, "run"))
    try:
        deadline = time.monotonic() + _PATIENCE
        while _commits(folder) <= before + 1 and time.monotonic() < deadline:
            assert process.poll() is None, "the driver ended by itself"
            time.sleep(0.1)
        time.sleep(dice.random() * 3)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return _commits(folder) - before


def _crash(writing: Writing, root: Path) -> None:
    """Half a frame at the end of the log, and a recovery that cuts it off."""
    writing.store.close()
    last = max(writing.keys)
    for path in sorted((root / "commitlog").iterdir()):
        start = int(path.name)
        if start <= last < start + path.stat().st_size:
            data = bytearray(path.read_bytes())
            size = int.from_bytes(data[last - start : last - start + 4], "big")
            torn = bytes(data[last - start : last - start + size // 2])
            data[last - start + size : last - start + size + len(torn)] = torn
            path.write_bytes(data[: path.stat().st_size])
    (root / "abort").touch()
    with MessageStore.open(root, "r", SMALL) as store:
        store.recover(cut=True)
    writing.store = MessageStore.open(root, "rw", SMALL)


def main(folder: Path, rounds: int) -> None:
    """Do that."""
    dice = random.Random(rounds)
    changed, other = Writing(folder / "broker-a"), Writing(folder / "broker-b")
    gone: set[str] = set()
    for number in range(rounds):
        with changed, other:
            batches = killed_in_mid_batch(folder, dice)
        what = ("nothing", "crash", "cut")[number % 3 if number >= rounds // 2 else number % 2]
        if what == "crash":
            _crash(changed, folder / "broker-a")
        elif what == "cut":
            gone |= set(changed.cut(dice.randrange(5, 40)))
            changed.put(60)
        sizes = f"{len(changed.keys)} and {len(other.keys)} messages"
        print(f"round {number}: {batches} batches, {sizes}, then {what}", flush=True)
    changed.store.close()
    other.store.close()
    done = subprocess.run(_command(folder, "rest"), capture_output=True, text=True, check=True, timeout=_PATIENCE)
    found = Counter({key: int(times) for key, times in (line.split() for line in done.stdout.splitlines())})
    wanted = {*changed.keys.values(), *other.keys.values()}
    missing, unknown = wanted - found.keys(), found.keys() - wanted - gone
    twice = {key for key, times in found.items() if times > 1}
    print(
        f"{len(wanted)} messages, {len(missing)} missing, {len(unknown)} unknown, {len(twice)} twice, {len(gone)} cut"
    )
    assert not missing
    assert not unknown
    assert not twice or gone
    assert twice.isdisjoint(other.keys.values())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if sys.argv[2] in ("run", "rest"):
        _query(target, available_now=sys.argv[2] == "rest")
    else:
        main(target, int(sys.argv[2]))
