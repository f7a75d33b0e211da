"""Processes of this machine that carry out tasks: started as plain Pythons, ended with whoever started them.

Not the pool of the standard library: its workers take Ctrl-C for themselves, start by importing the caller's main
module, and live on when the caller is killed.

Workers are kept from one job to the next: to start one and to load its kernels takes half a second of a processor, as
much as 300 MB of log take.
"""

from __future__ import annotations

import functools
import os
import pickle
import selectors
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

from rmqctl.formats.errors import RmqctlError, UnreadableError

_LENGTH = struct.Struct("<Q")
# what an order to a worker begins with
_TASK, _ITEM = b"T", b"I"
_START = "import sys, pickle; sys.path[:] = {path!r}; from rmqctl.pipeline.engine.local_pool import work; work()"


class _Worker:
    """One process. `number` is the item that it works on."""

    def __init__(self) -> None:
        program = _START.format(path=sys.path)
        # a process group of its own: Ctrl-C at the terminal is for the caller, who then ends the workers
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        self.number = -1
        self.stdout = _stream(self.process.stdout)
        self._stdin = _stream(self.process.stdin)

    def take_on(self, task: bytes) -> None:
        """From now on items are for this task, pickled."""
        _send(self._stdin, _TASK + task)

    def give(self, number: int, item: Any) -> None:
        """Let it do the task for an item."""
        self.number = number
        _send(self._stdin, _ITEM + pickle.dumps(item))

    def answer(self) -> tuple[bool, Any]:
        """What came of it: whether it went well, and the result or the error."""
        data = _receive(self.stdout)
        if data is None:
            code = self.process.wait()
            raise UnreadableError(
                f"a worker process ended unexpectedly ({'signal' if code < 0 else 'exit code'} {abs(code)})",
                hint="it may have run out of memory: try again with fewer processes",
            )
        answer: tuple[bool, Any] = pickle.loads(data)
        return answer

    def end(self) -> None:
        """End it, in the middle of its work if need be."""
        self.process.kill()
        self._stdin.close()
        self.stdout.close()
        self.process.wait()


class Workers:
    """Processes that wait for work; `end` them."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def __len__(self) -> int:
        return len(self._idle)

    def end(self) -> None:
        """End those that wait."""
        while self._idle:
            self._idle.pop().end()

    def run(
        self,
        task: Callable[[Any], Any],
        items: Sequence[Any],
        processes: int,
        on_done: Callable[[int], None] | None,
    ) -> list[Any]:
        """`task` of each item, in the order of the items, by so many processes, of which no more than there are items
        work; those that are not there are started. The first error ends all of them. See Engine.run."""
        packed = pickle.dumps(task)
        taken: list[_Worker] = []
        try:
            for _ in range(min(processes, len(items))):
                # one that is at work is not among the idle: an error ends those of its own job only
                taken.append(self._idle.pop() if self._idle else _Worker())
                taken[-1].take_on(packed)
            results = _by_workers(taken, items, on_done)
        except BaseException:
            for worker in taken:
                worker.end()
            raise
        self._idle += taken
        return results


def _by_workers(workers: Sequence[_Worker], items: Sequence[Any], on_done: Callable[[int], None] | None) -> list[Any]:
    waiting = deque(enumerate(items))
    results: list[Any] = [None] * len(items)
    missing = len(items)
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
            worker.give(*waiting.popleft())
        while missing:
            for key, _ in selector.select():
                worker = key.data
                went_well, result = worker.answer()
                if not went_well:
                    raise result
                results[worker.number] = result
                missing -= 1
                if on_done is not None:
                    on_done(1)
                if waiting:
                    worker.give(*waiting.popleft())
                else:
                    selector.unregister(worker.stdout)
    return results


def work() -> None:
    """The life of a worker: orders from stdin, answers to stdout, until its caller is gone, however it went."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    orders = sys.stdin.buffer
    todo: deque[bytes] = deque()
    there = threading.Semaphore(0)

    def listen() -> None:
        # not the working thread: it must end in the middle of its work when the caller is gone
        while (data := _receive(orders)) is not None:
            todo.append(data)
            there.release()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    task = b""
    while True:
        there.acquire()
        order = todo.popleft()
        if order.startswith(_TASK):
            task = order[len(_TASK) :]
        else:
            _send(answers, _answer(task, order[len(_ITEM) :]))


@functools.lru_cache(1)
def _task(packed: bytes) -> Callable[[Any], Any]:
    """The task, made once for all of its items."""
    task: Callable[[Any], Any] = pickle.loads(packed)
    return task


def _answer(task: bytes, item: bytes) -> bytes:
    try:
        return pickle.dumps((True, _task(task)(pickle.loads(item))))
    except RmqctlError as error:
        return pickle.dumps((False, error))
    except Exception as error:  # noqa: BLE001 - a bug is told where the command's other bugs are
        error.add_note("in a worker process")
        try:
            return pickle.dumps((False, error))
        except Exception:  # noqa: BLE001 - an error that cannot travel: its text can
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    """The next piece; None when the other end is gone."""
    head = _exactly(stream, _LENGTH.size)
    return None if head is None else _exactly(stream, _LENGTH.unpack(head)[0])


def _exactly(stream: IO[bytes], length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = stream.read(length - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
