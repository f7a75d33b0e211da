"""Messages of a push consumer for a command: printed one by one, or handed to a command that decides on them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.commands.wire.run_command import run_for_message
from rmqctl.formats.properties import UNIQUE_KEY

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.network.clients.push.push_consumer import PushConsumer

_LOOK_SECONDS = 0.1
RESULT_COLUMNS = ("topic", "queue_id", "queue_offset", "unique_key", "reconsume_times", "exit_status", "result")
DROPPABLE_RESULT_COLUMNS = ("reconsume_times", "unique_key")


class PrintedMessages:
    """A callback whose messages are consumed once the next one is asked for."""

    def __init__(self, success: object) -> None:
        self._success = success
        self._is_over = False
        self._given: queue.SimpleQueue[tuple[StoredMessage, threading.Event]] = queue.SimpleQueue()

    def consume(self, messages: Sequence[StoredMessage], context: object) -> Any:
        """Hand messages to the one who prints, and wait for that."""
        for message in messages:
            printed = threading.Event()
            self._given.put((message, printed))
            while not printed.wait(_LOOK_SECONDS) and not self._is_over:
                pass
        return self._success

    def messages(self, consumer: PushConsumer, *, to_the_end: bool) -> Generator[StoredMessage, None, None]:
        """Yield the messages of a consumer, which is started and closed; one that is not printed is not consumed."""
        with consumer:
            try:
                while not consumer.has_ended(to_the_end=to_the_end):
                    try:
                        message, printed = self._given.get(timeout=_LOOK_SECONDS)
                    except queue.Empty:
                        continue
                    yield message
                    printed.set()
            finally:
                consumer.abandon()
                self._is_over = True


class CommandResults:
    """A callback that runs a command for each message: exit status 0 is `success`, any other `later`."""

    def __init__(self, command: Sequence[str], seconds: float, success: object, later: object) -> None:
        self._command = command
        self._seconds = seconds
        self._verdicts = (later, success)
        self._rows: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def consume(self, messages: Sequence[StoredMessage], context: object) -> Any:
        """Run the command. One that cannot run is a failure, reported by the consumer."""
        (message,) = messages
        status = run_for_message(self._command, message, self._seconds)
        self._rows.put(
            {
                "topic": message.topic,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "unique_key": message.properties().get(UNIQUE_KEY),
                "reconsume_times": message.reconsume_times,
                "exit_status": status,
                "result": "later" if status else "success",
            }
        )
        return self._verdicts[not status]

    def rows(
        self, consumer: PushConsumer, flush: Callable[[], None], *, to_the_end: bool
    ) -> Generator[dict[str, Any], None, None]:
        """Yield a row for each message of a consumer, which is started and closed."""
        with consumer:
            while not consumer.has_ended(to_the_end=to_the_end) or not self._rows.empty():
                try:
                    yield self._rows.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
                flush()
        while not self._rows.empty():
            yield self._rows.get()
