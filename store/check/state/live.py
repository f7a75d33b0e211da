"""Whether somebody writes to a store while it is looked at, and up to where its log is settled then."""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.lock import lock_holder, users_of
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.survey.tail import look_at_tail

_TRIES = 20
_PAUSE_S = 0.05


def is_in_use(layout: StoreLayout) -> bool:
    """Whether a broker or another writer has the store open, as far as its lock and /proc tell."""
    return lock_holder(layout.lock) is not None or bool(users_of(layout))


def settled_end(log: MappedFileQueue, pause: Callable[[float], None] = time.sleep) -> int:
    """Physical offset up to which the log of a live store can be judged: behind its last whole message just now.

    A frame that is being written looks damaged for a moment, so damage at the end is looked at again for a second;
    what stays damaged lies before the offset that is returned.
    """
    tail = look_at_tail(log)
    for _ in range(_TRIES):
        if tail.damage is None:
            break
        pause(_PAUSE_S)
        before, tail = tail, look_at_tail(log)
        if tail.damage is not None and tail.damage.physical_offset > before.damage.physical_offset:  # type: ignore[union-attr]
            # the writer went on: all before this frame is whole, and the frame is none of ours
            return tail.end
    return tail.end if tail.damage is None else tail.damage.end
