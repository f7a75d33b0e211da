"""Whether a broker would take a message for a topic and queue: what `append` says before it stores something there."""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, RefusedError, UnreadableError
from rmqctl.formats.message import Message
from rmqctl.formats.wording import counted
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.topic_names import NOT_ALLOWED_TO_SEND, has_legal_characters
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.store_files import StoreFiles

# the timer's is as much its own, though TopicValidator does not refuse it
_NOT_ALLOWED = NOT_ALLOWED_TO_SEND | {"rmq_sys_wheel_timer"}
# what a broker makes by itself
_OWN_PREFIXES = ("%RETRY%", "%DLQ%", "%LMQ%", "rmq_sys_")
_HINT = "--anywhere stores it all the same"


class TopicQueues(NamedTuple):
    """Queues of each topic as config/topics.json has them; None where nobody can say."""

    queues: dict[str, int] | None

    @classmethod
    def of(cls, files: StoreFiles) -> TopicQueues:
        """Those of a store. Without a topics.json, or with a damaged one, everything may be right."""
        try:
            content = read_config(files.layout.config / "topics.json")
            table = content["topicConfigTable"]
            return cls({topic: _queues(entry) for topic, entry in table.items()})
        except (CorruptError, UnreadableError, AttributeError, KeyError, TypeError, ValueError):
            return cls(None)

    def is_unknown(self, topic: str) -> bool:
        """Whether topics.json would have to name the topic and does not."""
        if self.queues is None or topic in self.queues or topic in _NOT_ALLOWED:
            return False
        return not topic.startswith(_OWN_PREFIXES)

    def require(self, message: Message) -> None:
        """RefusedError where a broker refuses topic or queue (AbstractSendMessageProcessor#msgCheck)."""
        # what no store can take, the store says
        if is_safe_topic(message.topic) and not has_legal_characters(message.topic):
            raise RefusedError(
                f"no broker takes a topic {message.topic!r}: letters, digits and _ - % | may stand in its name",
                hint=_HINT,
            )
        if message.topic in _NOT_ALLOWED:
            raise RefusedError(f"no producer may send to {message.topic}, which the broker writes itself", hint=_HINT)
        queues = (self.queues or {}).get(message.topic)
        if queues is not None and message.queue_id >= queues:
            numbers = "0" if queues == 1 else f"0 to {queues - 1}"
            raise RefusedError(
                f"topic {message.topic!r} has {counted(queues, 'queue')} in topics.json, {numbers}: no queue "
                f"{message.queue_id}",
                hint=_HINT,
            )


def _queues(entry: dict[str, Any]) -> int:
    return max(int(entry.get("readQueueNums", 0)), int(entry.get("writeQueueNums", 0)))
