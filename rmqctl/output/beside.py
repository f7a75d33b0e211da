"""Lines that a thread of its own writes: who says them, such as the loop of a server, never waits for who reads them.

A terminal that was stopped (Ctrl-S), a pipe that nobody empties: what is said then is kept up to a bound, and what goes
beyond it is counted.
"""

from __future__ import annotations

import contextlib
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rmqctl.formats.wording import counted

_MOST_WAITING = 10_000
# a pipe that can be written to takes so many bytes at once (PIPE_BUF)
_LONGEST_LINE = 4000
_LOOK_MS = 100
_LAST_SECONDS = 1.0


class Beside:
    """Writes what any thread says, in order. A context: in the end what waits is written, if anybody reads it soon."""

    def __init__(self, write: Callable[[str], None], most_waiting: int = _MOST_WAITING) -> None:
        """`write` puts a line on stderr."""
        self._write = write
        self._waiting: deque[str] = deque()
        self._most_waiting = most_waiting
        self._left_out = 0
        self._is_ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="said-lines", daemon=True)

    def say(self, line: str) -> None:
        """Have a line written, soon."""
        with self._changed:
            if len(self._waiting) >= self._most_waiting:
                self._left_out += 1
            else:
                self._waiting.append(line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "…")
            self._changed.notify()

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        poll = _poll_of_stderr()
        looks_left = int(_LAST_SECONDS * 1000 / _LOOK_MS)
        while (line := self._next()) is not None:
            while poll is not None and not poll.poll(_LOOK_MS):
                looks_left -= self._is_ending
                if looks_left <= 0:
                    return
            self._write(line)

    def _next(self) -> str | None:
        """The next line, when there is one; None in the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._left_out or self._is_ending)
            if self._waiting:
                return self._waiting.popleft()
            left_out, self._left_out = self._left_out, 0
            return f"{counted(left_out, 'line')} left out: nobody read them" if left_out else None


def _poll_of_stderr() -> select.poll | None:
    """Tells when stderr takes a line at once; None where it is no file of the system's."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        poll = select.poll()
        poll.register(sys.stderr.fileno(), select.POLLOUT)
        return poll
    return None
