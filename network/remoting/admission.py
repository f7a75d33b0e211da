"""How many connections a process takes: what its file descriptors leave once the store has its share."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress

from rmqctl.formats.wording import counted
from rmqctl.network.remoting.services import Tell

# what a busy store has open at once: 256 files that are read, 128 queues, the log, the index, and what is flushed
_STORE_DESCRIPTORS = 512
_FEWEST = 2
# how often the same lack is reported
_SILENT_SECONDS = 60.0


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one, where the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_left(most: int) -> int:
    """Return how many connections this process may take: `most`, or fewer where the limit of open files and what the
    store needs leave fewer. A small limit is shared by halves."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return most
    reserved = min(_STORE_DESCRIPTORS, limit // 2)
    return max(_FEWEST, min(most, limit - reserved - _open_descriptors()))


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class Admission:
    """One bound for the connections of several servers, and one line for what is refused because of it."""

    def __init__(self, most: int, tell: Tell) -> None:
        """`most`: connections at once, of all servers."""
        self.most = most
        self._tell = tell
        self._counts: list[Callable[[], int]] = []
        self._said: dict[str, float] = {}

    def count(self, taken: Callable[[], int]) -> None:
        """Count the connections of one more server: `taken` says how many it has."""
        self._counts.append(taken)

    def is_full(self) -> bool:
        """Return whether no further connection is taken; says so once a minute."""
        if sum(taken() for taken in self._counts) < self.most:
            return False
        self.say(f"there are {counted(self.most, 'connection')} already: further ones are closed")
        return True

    def say(self, line: str) -> None:
        """Report a lack, the same one at most once a minute."""
        now = time.monotonic()
        if now - self._said.get(line, -_SILENT_SECONDS) >= _SILENT_SECONDS:
            self._said[line] = now
            self._tell(line)
