"""Rows of `rmqctl groups --pop`: groups that consume by POP, and the messages that they were handed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.formats.errors import NotFoundError
from rmqctl.output.outcome import tell_answer
from rmqctl.output.times import now_ms
from rmqctl.reports.consumers import exact, is_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from rmqctl.output.outcome import AnswerRow
    from rmqctl.output.output import Output
    from rmqctl.reports.consumers import WantedGroups
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.options import Events

_GROUP_COLUMNS = (
    "group", "topic", "way", "in_flight", "overdue", "acknowledged", "lost", "first_visible_timestamp",
    "again_at_restart", "retry_topic", "retries", "detail",
)  # fmt: skip
_DROPPABLE = ("detail", "acknowledged", "retry_topic", "lost", "way")
_MESSAGE_COLUMNS = (
    "group", "topic", "queue_id", "queue_offset", "state", "popped_timestamp", "visible_timestamp", "attempt",
    "next_topic", "again_at_restart", "record", "detail",
)  # fmt: skip
_DROPPABLE_OF_MESSAGES = ("detail", "record", "popped_timestamp", "next_topic", "again_at_restart")


def tell_popped(opened: MessageStore, output: Output, wanted: WantedGroups) -> int:
    """Print groups that consume by POP, or each message of one that is named; return the exit code."""
    is_one = wanted.group is not None and not is_pattern(wanted.group)
    columns, droppable = (_MESSAGE_COLUMNS, _DROPPABLE_OF_MESSAGES) if is_one else (_GROUP_COLUMNS, _DROPPABLE)
    hidden: set[str] = set()

    def ask(events: Events) -> Iterator[dict[str, Any]]:
        state = opened.pop(now=now_ms(), events=events)
        group, topic = exact(wanted.group), exact(wanted.topic)
        found: Iterable[AnswerRow] = state.groups()
        if is_one:
            found = state.messages(lambda owner, of: group == owner and topic in (None, of))
        yield from wanted.chosen((row._asdict() for row in found), hidden)

    hint = "`rmqctl groups` shows the offsets of all groups"
    nothing = NotFoundError("no message is in flight by POP", hint=hint)
    return tell_answer(output, columns, ask, nothing, droppable)
