"""Runs commands on one hostile store in this process: how each ended, how long it took and what it used.

python -m tests.hostile.driver NAME FOLDER      one JSON object a line, on stdout
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from tests.hostile.corpus import CORPUS, ONLY_LOOKED_AT
from tests.rmqctl.looking import run

SECONDS = 30
"""Of processor time that a command may take: a busy machine must not fail it."""
_HANGS_AFTER = 240
_ADDRESS_SPACE = 16 << 30
_DUMPED = 14

LOOKS: tuple[tuple[str, ...], ...] = (
    ("doctor",),
    ("watch",),
    ("report", "-o", "/dev/null"),
    ("report", "-o", "/dev/null", "--anonymise"),
    ("info",),
    ("info", "--quick", "--json"),
    ("ls",),
    ("ls", "--queues", "--json"),
    ("ls", "--files"),
    ("ls", "--tiered"),
    ("du",),
    ("du", "--quick", "--json"),
    ("du", "--map"),
    ("cat", "-n", "-20", "--grep", "a.*b"),
    ("cat",),
    ("cat", "--json"),
    ("cat", "-t", "T", "--compacted"),
    ("cat", "-t", "T", "--tiered"),
    ("cat", "--order", "queue", "--format", "csv"),
    ("where", "0"),
    ("where", "k", "-g", "g", "--json"),
    ("where", "T", "0", "0"),
    ("where", "T", "0", "7", "--json"),
    ("where", "7F00000100002A9F0000000000000000"),
    ("groups",),
    ("groups", "-t", "T", "--json"),
    ("groups", "--plot"),
    ("delays", "--json"),
    ("delays", "--plot"),
    ("halves", "--json"),
    ("acl", "--json"),
    ("dlq list", "--json"),
    ("dlq redrive", "-g", "T", "--dry-run"),
    ("offsets show", "--json"),
    ("offsets lint",),
    ("clean", "--forecast", "--json"),
    ("query", "-t", "T", "-q", "0", "-o", "0"),
    ("query", "-o", "0", "--json"),
    ("query", "-o", "9223372036854775807"),
    ("query", "-k", "k", "-t", "T"),
    ("query", "-k", "k", "--scan", "--json"),
    ("query", "-i", "7F00000100002A9F0000000000000000"),
    ("query", "-t", "T", "--at", "0"),
    ("check",),
    ("check", "--quick", "--json"),
    ("check", "--full", "--format", "csv"),
    ("predict",),
    ("predict", "--broker", "4.9.8", "--json"),
    ("predict", "--epochs", "STORE", "--json"),
    ("log",),
    ("clean", "--dry-run"),
    ("repair", "--dry-run"),
    ("rebuild", "--dry-run"),
    ("rebuild", "--compacted", "--dry-run"),
    ("recover", "--dry-run", "--full", "--cut", "--json"),
)
CHANGES: tuple[tuple[str, ...], ...] = (
    ("recover",),
    ("recover", "--full", "--cut", "--yes"),
    ("rebuild",),
    ("append", "-t", "T", "--body", "x"),
    ("offsets set", "-g", "G", "-t", "T", "-q", "0", "-o", "1", "--new-group", "--anywhere", "--yes"),
    ("offsets reset", "-g", "G", "-t", "T", "--to", "earliest", "--new-group", "--yes"),
    ("repair", "--yes"),
    ("repair", "--only", "RMQ-TIER-006", "--only", "RMQ-TIER-008"),
    ("salvage", "STORE", "--to", "OUT/new"),
    ("salvage", "STORE", "--to", "OUT/new", "--offsets", "renumber", "--stale", "--json"),
    ("snapshot", "OUT/new"),
    ("twin", "STORE", "OUT/new", "--anonymise"),
    ("export", "OUT/new.jsonl", "--format", "jsonl"),
    ("export", "OUT/new", "--format", "jsonl", "--partition"),
    ("export", "OUT/new.parquet", "--format", "parquet"),
)


class TooLong(BaseException):
    """A command did not end in time: no Exception, so that nothing mistakes it for a bug of the command."""


def _alarm(_signal: int, _frame: FrameType | None) -> None:
    raise TooLong


def peak() -> int:
    """Most memory this process had at once since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def state(root: Path) -> dict[str, str]:
    """Kind, size and content of everything below `root`, nothing opened that could wait or never end."""
    found: dict[str, str] = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            info = path.lstat()
            digest = str(info.st_size) if stat.S_ISREG(info.st_mode) else str(stat.S_IFMT(info.st_mode))
            if stat.S_ISREG(info.st_mode) and info.st_size < 1 << 24:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")] = (
                f"{digest} {info.st_mtime_ns}"
            )
    return found


def _used(root: Path) -> int:
    """Bytes on disk below `root`."""
    return sum(path.lstat().st_blocks * 512 for path in root.rglob("*"))


def _dumps(store: Path) -> list[tuple[str, ...]]:
    files = [path for path in sorted(store.rglob("*")) if not path.is_dir()][:_DUMPED]
    ways = (("-n", "30"), ("--hex", "-n", "5"), ("--json", "-n", "5"))
    return [("dump", str(path), *ways[number % 3]) for number, path in enumerate(files)]


def _run(command: tuple[str, ...], store: Path) -> dict[str, Any]:
    out = store.parent
    given = [part.replace("STORE", str(store)).replace("OUT", str(out)) for part in command]
    given[:1] = verb = given[0].split()
    if command[0] not in ("dump", "salvage"):
        given[len(verb) : len(verb)] = ["-s", str(store)]
    used = _used(out)
    reset_peak()
    before, began = peak(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, _HANGS_AFTER)
    try:
        done = run(*given)
        code, text, talk = done.code, done.out, done.err
    except TooLong:
        code, text, talk = -1, "", "too long"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    raw = [line for line in (text + talk).splitlines() if not line.isprintable()]
    return {
        "command": " ".join(command),
        "code": code,
        "seconds": round(time.process_time() - began, 2),
        "memory": peak() - before,
        "disk": _used(out) - used,
        "raw": [ascii(line)[:300] for line in raw[:3]],
        "talk": ascii(talk[-600:]),
    }


def main(name: str, folder: Path) -> None:
    """All commands on the store of that name, made anew below `folder` for each that changes something."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _alarm)
    maker = CORPUS[name]
    store = folder / "look" / "store"
    store.mkdir(parents=True)
    maker(store)
    before = state(store.parent)
    for command in (*LOOKS, *_dumps(store)):
        print(json.dumps(_run(command, store)), flush=True)
    print(json.dumps({"command": "look", "untouched": state(store.parent) == before}), flush=True)
    for number, command in enumerate(() if name in ONLY_LOOKED_AT else CHANGES):
        store = folder / str(number) / "store"
        store.mkdir(parents=True)
        maker(store)
        kept = {path: digest for path, digest in state(store.parent).items() if path.startswith("outside")}
        row = _run(command, store)
        now = state(store.parent)
        row["beside"] = sorted({path.split("/")[0] for path in now})
        row["outside_changed"] = {path: digest for path, digest in now.items() if path.startswith("outside")} != kept
        print(json.dumps(row), flush=True)
        shutil.rmtree(store.parent)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
