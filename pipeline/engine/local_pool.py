"""Processes of this machine that carry out tasks: started as plain Pythons, ended with whoever started them.

Not the pool of the standard library: its workers take Ctrl-C for themselves, start by importing the caller's main
module, and live on when the caller is killed.
"""

from __future__ import annotations

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
_START = "import sys, pickle; sys.path[:] = {path!r}; from rmqctl.pipeline.engine.local_pool import work; work()"


class _Worker:
    """One process. `number` is the item that it works on."""

    def __init__(self, task: bytes) -> None:
        program = _START.format(path=sys.path)
        # a process group of its own: Ctrl-C at the terminal is for the caller, who then ends the workers
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        self.number = -1
        self.stdout = _stream(self.process.stdout)
        self._stdin = _stream(self.process.stdin)
        _send(self._stdin, task)

    def give(self, number: int, item: Any) -> None:
        """Let it do the task for an item."""
        self.number = number
        _send(self._stdin, pickle.dumps(item))

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


def run_in_processes(
    task: Callable[[Any], Any], items: Sequence[Any], processes: int, on_done: Callable[[int], None] | None
) -> list[Any]:
    """`task` of each item, in the order of the items; the first error ends all. See Engine.run."""
    waiting = deque(enumerate(items))
    results: list[Any] = [None] * len(items)
    packed = pickle.dumps(task)
    workers: list[_Worker] = []
    missing = len(items)
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(processes):
                worker = _Worker(packed)
                workers.append(worker)
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
        finally:
            for worker in workers:
                worker.end()
    return results


def work() -> None:
    """The life of a worker: items from stdin, answers to stdout, until its caller is gone, however it went."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    orders = sys.stdin.buffer
    received = _receive(orders)
    if received is None:
        return
    task = pickle.loads(received)
    todo: deque[bytes] = deque()
    there = threading.Semaphore(0)

    def listen() -> None:
        # not the working thread: it must end in the middle of its work when the caller is gone
        while (data := _receive(orders)) is not None:
            todo.append(data)
            there.release()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        there.acquire()
        _send(answers, _answer(task, todo.popleft()))


def _answer(task: Callable[[Any], Any], item: bytes) -> bytes:
    try:
        return pickle.dumps((True, task(pickle.loads(item))))
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
