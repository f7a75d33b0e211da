"""States of a producer, and the groups that have one in this process (ServiceState, MQClientInstance)."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Hashable

from rmqctl.formats.errors import RefusedError


class ServiceState(enum.Enum):
    """State of a producer, by RocketMQ's names."""

    CREATE_JUST = "created"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "shut down"
    START_FAILED = "failed"


_lock = threading.Lock()
_taken: set[Hashable] = set()


class Lifecycle:
    """Life cycle of one producer, which starts once and ends once. May be used by many threads."""

    def __init__(self) -> None:
        self.state = ServiceState.CREATE_JUST
        self._key: Hashable = None

    def start(self, check: Callable[[], Hashable], group: str) -> None:
        """Run `check`, and take the key that it returns for this process.

        Raises: what `check` raises, and the producer has failed; RefusedError where it was started before, or where
        the key is taken, and it can be started later.
        """
        with _lock:
            if self.state is not ServiceState.CREATE_JUST:
                raise RefusedError(f"The producer service state not OK, maybe started once, {self.state.name}")
            self.state = ServiceState.START_FAILED
            key = check()
            if key in _taken:
                self.state = ServiceState.CREATE_JUST
                raise RefusedError(
                    f"The producer group[{group}] has been created before, specify another name please.",
                    hint="close the other producer, or give one of them another group or instanceName",
                )
            _taken.add(key)
            self._key = key
            self.state = ServiceState.RUNNING

    def require_running(self) -> None:
        """Raises: RefusedError where the producer is not running."""
        if self.state is not ServiceState.RUNNING:
            hint = (
                "start it: start(), or a `with` block" if self.state is ServiceState.CREATE_JUST else "make a new one"
            )
            raise RefusedError(f"The producer service state not OK, {self.state.name}", hint=hint)

    def end(self) -> bool:
        """Leave the running state; return False where the producer was not running."""
        with _lock:
            if self.state is not ServiceState.RUNNING:
                return False
            _taken.discard(self._key)
            self.state = ServiceState.SHUTDOWN_ALREADY
            return True
