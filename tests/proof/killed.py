"""The process that forks the works of kills.py: it has one thread and everything loaded, so that a child costs little.

Reads orders, a line of JSON each, from stdin, and answers each with a line on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from rmqctl.store.files import io
from tests.proof.mutants import MUTANTS
from tests.proof.works import WORKS, attempt
from tests.store.small_dledger import small_index

_LONGEST = 300
"""Seconds after which a work hangs."""


def main() -> None:
    """Fork a child for each order until there are no more."""
    if sys.argv[1]:
        MUTANTS[sys.argv[1]](setattr)
    with small_index():
        for line in sys.stdin:
            print(json.dumps(_forked(json.loads(line))), flush=True)


def _forked(order: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 70
        try:
            signal.alarm(_LONGEST)
            os.write(writing, json.dumps(_worked(order)).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return dict(json.loads(answer))
    return {"code": os.waitstatus_to_exitcode(status), "text": "", "changes": order["at"]}


def _worked(order: dict[str, Any]) -> dict[str, Any]:
    """Do the work of an order; killed at its change of that number."""
    count = 0
    write_at = io.write_at
    notes = os.open(order["notes"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def observe(_operation: str, path: str, *_: int) -> None:
        nonlocal count
        if path.startswith(order["place"]):
            count += 1
            if count == order["at"]:
                os.kill(os.getpid(), signal.SIGKILL)

    def tear(descriptor: int, path: Any, offset: int, data: Any) -> None:
        if count == order["at"] - 1:
            os.pwrite(descriptor, memoryview(data)[: len(data) // 2], offset)
        write_at(descriptor, path, offset, data)

    io.observer = observe
    if order["torn"]:
        io.write_at = tear
    # by a system call of its own: what was noted stays when the process is killed
    told = attempt(WORKS[order["name"]], Path(order["place"]), lambda body: _noted(notes, body))
    return {"code": told.code, "text": told.text, "changes": count}


def _noted(descriptor: int, body: bytes) -> None:
    os.write(descriptor, body.hex().encode("ascii") + b"\n")


if __name__ == "__main__":
    main()
