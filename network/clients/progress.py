"""Progress of a member that consumes without a callback: offsets of its queues, committed in the background."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

from rmqctl.formats.errors import RemoteError
from rmqctl.network.clients.client import Client, Warn
from rmqctl.network.clients.membership import not_committed
from rmqctl.network.remoting.codec import MessageQueue

_COMMIT_SECONDS = 5.0
_T = TypeVar("_T")


class Job(Generic[_T]):
    """What a thread of its own does, begun at a monotonic time in s. The thread keeps no process from ending."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self.begun = time.monotonic()
        self.done: Future[_T] = Future()
        threading.Thread(target=self._run, args=(work,), name="rmqctl-asks", daemon=True).start()

    def _run(self, work: Callable[[], _T]) -> None:
        try:
            self.done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self.done.set_exception(error)


def commit_offsets(client: Client, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, RemoteError]:
    """Commit offsets of a group, and return why some were not taken: a broker that fails is asked once."""
    away: dict[str, RemoteError] = {}
    missed: dict[MessageQueue, RemoteError] = {}
    for queue, offset in sorted(offsets.items()):
        if queue.broker_name not in away:
            try:
                client.commit_offset(group, queue, offset)
                continue
            except RemoteError as error:
                away[queue.broker_name] = error
        missed[queue] = away[queue.broker_name]
    return missed


class GroupProgress:
    """Offsets that a member commits every 5 s, and when it gives up queues. For one thread; brokers are asked in
    another."""

    def __init__(self, client: Client, group: str, warn: Warn, reached: Callable[[MessageQueue], int]) -> None:
        """`reached`: the offset up to which a queue is consumed."""
        self._client = client
        self._group = group
        self._warn = warn
        self._reached = reached
        self.unsaved = set[MessageQueue]()
        """Queues of which more is consumed than committed."""
        self.given_up: dict[MessageQueue, int] = {}
        """Offsets of queues that belong to others by now, as long as they are not committed."""
        self.uncommitted: dict[MessageQueue, int] = {}
        """Offsets that could not be committed when their queue was given up."""
        self._committed = set[MessageQueue]()
        self._wanted: dict[MessageQueue, int] = {}
        self._saving: Job[dict[MessageQueue, RemoteError]] | None = None
        self._saved_at = time.monotonic()

    def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Commit queues for the last time with the next step."""
        self.given_up |= {queue: self._reached(queue) for queue in self.unsaved.intersection(queues)}
        self.unsaved.difference_update(queues)
        self._committed.difference_update(queues)

    def step(self) -> RemoteError | None:
        """Commit what is due, without waiting for it. Return why that failed last."""
        problem = self._saved() if self._saving is not None and self._saving.done.done() else None
        is_due = time.monotonic() - self._saved_at >= _COMMIT_SECONDS
        if self._saving is None and (is_due or self.given_up):
            # a broker that was killed has lost what was committed last
            self._save(self._committed - self.unsaved)
        return problem

    def save_now(self) -> RemoteError | None:
        """Commit, and wait for that. Return why it failed."""
        if self._saving is not None:
            self._saved()
        self._save(())
        return self._saved()

    def _save(self, again: Collection[MessageQueue]) -> None:
        self._saved_at = time.monotonic()
        self._wanted = wanted = {queue: self._reached(queue) for queue in self.unsaved} | self.given_up
        repeated = {queue: self._reached(queue) for queue in sorted(again)}

        def commit() -> dict[MessageQueue, RemoteError]:
            missed = commit_offsets(self._client, self._group, wanted)
            for queue, offset in repeated.items():
                # one that is away is asked with the next pull
                with contextlib.suppress(RemoteError):
                    self._client.commit_offset(self._group, queue, offset, is_oneway=True)
            return missed

        self._saving = Job(commit)

    def _saved(self) -> RemoteError | None:
        """Wait for what is being committed, and note it. Return why it failed."""
        job, self._saving = self._saving, None
        missed = job.done.result() if job is not None else {}
        for queue, offset in sorted(self._wanted.items()):
            is_given_up = self.given_up.get(queue) == offset
            if is_given_up:
                del self.given_up[queue]
            if queue not in missed:
                self.uncommitted.pop(queue, None)
            elif is_given_up:
                self.uncommitted[queue] = offset
                self._warn(not_committed(queue, offset, missed[queue]))
            if queue in self.unsaved and queue not in missed:
                self._committed.add(queue)
                if self._reached(queue) == offset:
                    self.unsaved.discard(queue)
        return next(iter(missed.values()), None)
