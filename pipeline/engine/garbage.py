"""Python's collector of circular garbage, kept out of work that makes many objects which live, and no circles.

Each collection looks through all that was made before: of a check of 10,000 queues by tasks that was a quarter of the
processor time.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No collections meanwhile, in any thread, afterwards as before. What is in no circle goes at once, as ever."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # whoever came while it was off leaves it off: the one who switched it off brings it back
        if was_enabled:
            gc.enable()
