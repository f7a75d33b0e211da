"""Messages as lines of JSON, whole commands from exec to exit: `cat --json`, and `append --from` of what it printed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Measurement, in_turns, rates
from bench.stores import TEXT_BODY, write_store

_SIZE = 500_000_000
_LEAST = 5_000_000
_ASKED = 150_000.0


def lines_of_json(folder: Path, scale: float) -> Iterator[Measurement]:
    """Messages/s with bodies of 300 bytes of JSON, against what is asked for."""
    store = write_store(folder, "small", max(_LEAST, int(_SIZE * scale)), "text", TEXT_BODY)
    lines = folder / "text.jsonl"
    copy = folder / "text-copy"
    program = Path(sys.executable).with_name("rmqctl")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "rmqctl"]
    printing = [*command, "cat", "-s", str(store.path), "--json"]
    reading = [*command, "append", "-s", str(copy), "--create", "--from", str(lines)]

    def cat() -> float:
        return store.messages / _seconds(printing, Path(os.devnull))

    def append() -> float:
        shutil.rmtree(copy, ignore_errors=True)
        return store.messages / _seconds(reading, Path(os.devnull))

    # what is compiled once on a machine is compiled by then
    _seconds(printing, lines)
    append()
    for name, work in (("cat-json", cat), ("append-json", append)):
        pair = in_turns(work, None)._replace(other=_ASKED)
        yield rates(f"text-{name}", pair, "messages/s", "a rate to reach; the whole command", 1, 2)
    shutil.rmtree(copy)
    shutil.rmtree(store.path)
    lines.unlink()


def _seconds(command: list[str], output: Path) -> float:
    """From exec to exit; RuntimeError unless it succeeds."""
    begin = time.perf_counter()
    opened = (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    silence = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    process = os.posix_spawn(command[0], command, os.environ, file_actions=[opened, silence])
    _, status = os.waitpid(process, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return seconds
