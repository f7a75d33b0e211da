"""`rmqctl query` from exec to answer, against a Python that does nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import child
from bench.measure import Measurement
from bench.stores import TOPIC, BenchStore, unique_key
from rmqctl.formats.message import LOCAL_HOST, format_offset_message_id

_ROUNDS = 60
_MS = 1000


class _Taken(NamedTuple):
    """Seconds from exec to exit, and of the processor's time, which a busy machine stretches less."""

    seconds: float
    cpu: float


def short_commands(store: BenchStore) -> Iterator[Measurement]:
    """Milliseconds, the best of many taken in turns. Queues and index are made first."""
    store.reset()
    child.run("rebuild", store.path)
    program = Path(sys.executable).with_name("rmqctl")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "rmqctl"]
    place = ["query", "-s", str(store.path)]
    commands = {
        "offset-id": [*command, *place, "-i", format_offset_message_id(LOCAL_HOST, 0)],
        "physical-offset": [*command, *place, "-o", "0"],
        "unique-key": [*command, *place, "-i", unique_key(store.messages // 2)],
        "unique-key-of-topic": [*command, *place, "-t", TOPIC, "-i", unique_key(store.messages // 2)],
    }
    bare = [sys.executable, "-c", "pass"]
    for name, one in commands.items():
        taken = [(_run(one), _run(bare)) for _ in range(_ROUNDS)]
        ours, other = (min(pair[side].seconds for pair in taken) * _MS for side in (0, 1))
        cpu = [min(pair[side].cpu for pair in taken) * _MS for side in (0, 1)]
        yield Measurement(f"query-{name}", ours, other, ours / other, "ms", _ROUNDS, "python -c pass")
        yield Measurement(
            f"query-{name}-added", ours - other, cpu[0] - cpu[1], None, "ms", _ROUNDS, "CPU time added; stay under",
            at_least=60, aim=30,
        )  # fmt: skip
    store.reset()


def _run(command: list[str]) -> _Taken:
    """Run to the end, output thrown away; RuntimeError unless it succeeds."""
    silence = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_WRONLY, 0) for descriptor in (1, 2)]
    begin = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ, file_actions=silence)
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return _Taken(seconds, usage.ru_utime + usage.ru_stime)
