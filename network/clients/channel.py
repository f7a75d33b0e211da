"""A way to one server: requests out, answers and the server's own requests in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Protocol

from rmqctl.formats.errors import RemoteError
from rmqctl.network.remoting.codes import ResponseCode
from rmqctl.network.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand

Answered = RemotingCommand | Future[RemotingCommand] | None
"""An answer to a request of the server, at once or later; None where there is none."""

OnRequest = Callable[[RemotingCommand], Answered]
"""Takes a request that the server sends, and returns the answer; in a thread of the channel, so it must not wait for
answers."""

LANGUAGE = "PYTHON"


class Channel(Protocol):
    """A connection to a server, or what stands for one in the same process."""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""

    def send(self, command: RemotingCommand) -> None:
        """Send a command as it is. RemoteError if the server is gone."""

    def close(self) -> None:
        """End it; whoever waits for an answer gets a RemoteError."""


Dial = Callable[[str, "Answers"], Channel]
"""dial(address, answers): a channel to the server at `host:port`. RemoteError."""


class Answers:
    """Requests that wait for their answers, by their opaque numbers."""

    def __init__(self, address: str, on_request: Callable[[RemotingCommand], object]) -> None:
        self.address = address
        self._on_request = on_request
        self._lock = threading.Lock()
        self._opaque = 0
        self._waiting: dict[int, Future[RemotingCommand]] = {}

    def expect(self, command: RemotingCommand) -> tuple[RemotingCommand, Future[RemotingCommand]]:
        """`command` with a number of its own, and the future of its answer."""
        future: Future[RemotingCommand] = Future()
        with self._lock:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            self._waiting[self._opaque] = future
            return command._replace(opaque=self._opaque, language=LANGUAGE), future

    def received(self, command: RemotingCommand) -> None:
        """The server sent something."""
        if not command.is_response:
            # a server that is gone meanwhile asks again, if it comes back
            with contextlib.suppress(RemoteError):
                self._on_request(command)
            return
        with self._lock:
            future = self._waiting.pop(command.opaque, None)
        if future is not None:
            future.set_result(command)

    def forget(self, opaque: int) -> None:
        """Nobody waits for that answer any more."""
        with self._lock:
            self._waiting.pop(opaque, None)

    def forget_future(self, future: Future[RemotingCommand]) -> None:
        """Take no answer for a future any more."""
        with self._lock:
            self._waiting = {opaque: one for opaque, one in self._waiting.items() if one is not future}

    def lost(self, reason: str) -> None:
        """The server is gone: nothing will be answered."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(RemoteError(f"{self.address}: {reason}"))


class Connection:
    """Requests over one channel."""

    def __init__(self, address: str, dial: Dial, on_request: OnRequest) -> None:
        """RemoteError where the server cannot be reached."""
        self.address = address
        self._on_request = on_request
        self._answers = Answers(address, self._asked)
        self._channel = dial(address, self._answers)

    def _asked(self, command: RemotingCommand) -> None:
        answer = self._on_request(command)
        if command.is_oneway:
            return
        if isinstance(answer, Future):
            answer.add_done_callback(lambda done: self._answer_later(command, done))
            return
        if answer is None:
            # mqadmin's consumerStatus, for one, need not wait for an answer that does not come
            remark = f" request type {command.code} not supported"
            answer = RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        self._answer(command, answer)

    def _answer_later(self, command: RemotingCommand, done: Future[RemotingCommand]) -> None:
        if not done.cancelled():
            # a server that is gone meanwhile waits no longer
            with contextlib.suppress(RemoteError):
                self._answer(command, done.result())

    def _answer(self, command: RemotingCommand, answer: RemotingCommand) -> None:
        self._channel.send(answer._replace(opaque=command.opaque, flag=RESPONSE_FLAG, language=LANGUAGE))

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._channel.is_open

    def submit(self, command: RemotingCommand) -> Future[RemotingCommand]:
        """Send a request; its answer comes with the future. RemoteError if the server is gone already."""
        numbered, future = self._answers.expect(command)
        try:
            self._channel.send(numbered)
        except RemoteError:
            self._answers.forget(numbered.opaque)
            raise
        return future

    def abandon(self, future: Future[RemotingCommand]) -> None:
        """Take no answer for a future of `submit` any more."""
        self._answers.forget_future(future)

    def request(self, command: RemotingCommand, seconds: float) -> RemotingCommand:
        """Send a request and wait for its answer. RemoteError if none comes in `seconds`."""
        numbered, future = self._answers.expect(command)
        try:
            self._channel.send(numbered)
            return future.result(seconds)
        except FutureTimeoutError:
            raise RemoteError(
                f"{self.address}: request {command.code} is not answered within {seconds:.3g} s"
            ) from None
        finally:
            self._answers.forget(numbered.opaque)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that is not answered."""
        numbered, _ = self._answers.expect(command._replace(flag=ONEWAY_FLAG))
        self._answers.forget(numbered.opaque)
        self._channel.send(numbered)

    def close(self) -> None:
        """End it."""
        self._channel.close()
