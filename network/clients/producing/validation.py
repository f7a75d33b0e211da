"""Checks of a producer before it sends, with RocketMQ's messages (Validators of 5.3.3)."""

from __future__ import annotations

from rmqctl.formats import properties as names
from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.store.config.topic_names import NOT_ALLOWED_TO_SEND, group_problem, has_legal_characters

_LONGEST_TOPIC = 127
_LEGAL = "^[%|a-zA-Z0-9_-]+$"
_DEFAULT_GROUPS = {"producer": "DEFAULT_PRODUCER", "consumer": "DEFAULT_CONSUMER"}


def check_group(group: str, kind: str = "producer") -> None:
    """Raises: UsageError where no client of the kind, a producer or a consumer, may have the group."""
    problem = group_problem(group)
    if problem is not None:
        raise UsageError(problem)
    if group == _DEFAULT_GROUPS[kind]:
        raise UsageError(f"{kind}Group can not equal {group}, please specify another one.")


def check_topic(topic: str) -> None:
    """Raises: UsageError where no producer may send to the topic."""
    if not topic.strip():
        raise UsageError("The specified topic is blank")
    if len(topic) > _LONGEST_TOPIC:
        raise UsageError(f"The specified topic is longer than topic max length {_LONGEST_TOPIC}.")
    if not has_legal_characters(topic):
        raise UsageError(f"The specified topic[{topic}] contains illegal characters, allowing only {_LEGAL}")
    if topic in NOT_ALLOWED_TO_SEND:
        raise UsageError(f"Sending message to topic[{topic}] is forbidden.")


def check_message(message: Message, largest: int) -> None:
    """Raises: UsageError where a producer refuses the message; `largest`: maxMessageSize, in bytes."""
    check_topic(message.topic)
    if not message.body:
        raise UsageError("the message body length is zero")
    if len(message.body) > largest:
        raise UsageError(f"the message body size over max value, MAX: {largest}")
    path = message.properties.get(names.INNER_MULTI_DISPATCH, "")
    if "/" in path:
        raise UsageError(f"INNER_MULTI_DISPATCH {path} can not contains / character")
