"""Writes into copies of a store, each killed at another change of a file: run by test_sink_killed.py.

Reads an order, a line of JSON, from stdin: the store `base` (null for a new one), the `folder` for the copies, the
staged `tasks`, the micro-batch `batch` or null, and every how many changes to kill one: `step`. Prints the names of the
copies; the last one has the write that was not killed, because it had fewer changes.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from rmqctl.pipeline.spark.sink import write_staged
from rmqctl.pipeline.spark.sink_record import MicroBatch, StagedRows
from rmqctl.store.files import io
from tests.store.write.writing import SMALL

_LONGEST = 120
"""Seconds after which a write hangs."""


def main() -> None:
    """Kill one write after the other."""
    order = json.loads(sys.stdin.readline())
    copies = []
    for at in itertools.count(1, order["step"]):
        store = Path(order["folder"]) / str(at) / "store"
        store.parent.mkdir()
        if order["base"] is not None:
            shutil.copytree(order["base"], store)
        copies.append(at)
        if _forked(order, store, at) != -signal.SIGKILL:
            break
    print(json.dumps(copies))


def _forked(order: dict[str, Any], store: Path, at: int) -> int:
    child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.alarm(_LONGEST)
            _write(order, store, at)
            code = 0
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(code)
    return code


def _write(order: dict[str, Any], store: Path, at: int) -> None:
    changes = itertools.count(1)

    def observe(*_: object) -> None:
        if next(changes) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    io.observer = observe
    batch = None if order["batch"] is None else MicroBatch(*order["batch"])
    write_staged(store, SMALL, [StagedRows(*task) for task in order["tasks"]], batch=batch)


if __name__ == "__main__":
    main()
