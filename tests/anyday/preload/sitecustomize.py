"""Make time.sleep work under libfaketime, in processes that have this folder on their PYTHONPATH.

With FAKETIME_DONT_FAKE_MONOTONIC the library refuses the absolute sleep that Python 3.11 asks for, with EINVAL.
"""

import select
import time


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = _sleep  # type: ignore[assignment]
