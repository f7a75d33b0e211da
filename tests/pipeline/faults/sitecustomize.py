"""Makes reading a file fail or last, in every Python that is started with this folder on its PYTHONPATH.

FAULTY_FILE: its path; FAULTY_FROM: reads that reach beyond this position fail as those of a bad disk do; SLOW_STORE:
reads of files below this path last SLOW_SECONDS, and each leaves a file in SLOW_MARKS.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import Any

_FAULTY, _SLOW = os.environ.get("FAULTY_FILE"), os.environ.get("SLOW_STORE")


def _disturbed(read: Callable[..., Any], length_of: Callable[[Any], int]) -> Callable[..., Any]:
    def disturbed(descriptor: int, wanted: Any, position: int) -> Any:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path == _FAULTY and position + length_of(wanted) > int(os.environ["FAULTY_FROM"]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if _SLOW and path.startswith(_SLOW + "/"):
            with open(os.path.join(os.environ["SLOW_MARKS"], str(time.time_ns())), "x", encoding="ascii"):
                time.sleep(float(os.environ["SLOW_SECONDS"]))
        return read(descriptor, wanted, position)

    return disturbed


if _FAULTY or _SLOW:
    os.pread = _disturbed(os.pread, int)
    os.preadv = _disturbed(os.preadv, lambda buffers: sum(map(len, buffers)))
