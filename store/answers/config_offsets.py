"""Offsets as the broker keeps them in config/: whose they are, which of them count, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.config.config_files import load_config
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.selection import OnDamage

CONSUMER_FILE = "consumerOffset.json"
DELAY_FILE = "delayOffset.json"
OFFSET_TABLE = "offsetTable"
GROUP_TABLE = "subscriptionGroupTable"
"""In subscriptionGroup.json: the groups that a broker knows."""
# what a broker and its tools consume with (SubscriptionGroupManager#init)
_OWN_GROUPS = ("CID_", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP")
_SEPARATOR = "@"
_BROADCAST_PARTS = 3
_LARGEST_ID = 0x7FFFFFFF
_LONGEST_ID = 10

Say = Callable[[str], None]
"""Takes a sentence that belongs to an answer as a whole."""


class OffsetKey(NamedTuple):
    """Whose offsets an entry of consumerOffset.json holds. Those of a broadcasting group are the smallest of its
    clients', kept apart from what the group commits (BroadcastOffsetManager)."""

    topic: str
    group: str
    is_broadcast: bool


def offset_key(key: object) -> OffsetKey | None:
    """`topic@group`, or `topic@group@…` for a broadcasting group; None for anything else (ConsumerOffsetManager)."""
    parts = str(key).split(_SEPARATOR)
    if len(parts) not in (2, _BROADCAST_PARTS) or not all(parts[:2]):
        return None
    return OffsetKey(parts[0], parts[1], len(parts) == _BROADCAST_PARTS)


def offsets_of(table: Mapping[Any, Any]) -> dict[int, int]:
    """Offsets by queue id or delay level; what is no number is left out. Negative ones are none, and are kept."""
    return {
        int(number): offset
        for number, offset in table.items()
        if is_queue_id(str(number)) and isinstance(offset, int) and not isinstance(offset, bool)
    }


def is_queue_id(text: str) -> bool:
    """Whether `text` is the number of a queue or of a level: a positive int of Java's, in digits, or 0."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID and int(text) <= _LARGEST_ID


def whole_number(text: str) -> int | None:
    """The number of a queue or of a level, as is_queue_id has it, or a small count; None for any other text."""
    return int(text) if is_queue_id(text) else None


def is_own_group(name: str) -> bool:
    """Whether a group is one of the broker's own, or of its tools."""
    return name.startswith(_OWN_GROUPS)


def in_one(*details: str | None) -> str:
    """What is to be said of one row, as one sentence."""
    return "; ".join(filter(None, details))


def no_unit(queue: AnyConsumeQueue, queue_offset: int) -> CorruptError:
    """What to say of a unit that should be there."""
    place = f"unit {queue_offset} of {queue.topic!r} queue {queue.queue_id}"
    return CorruptError(f"{place} lies in no file of the queue", file=queue.directory)


def table_in(path: Path, name: str, tell: Say, on_damage: OnDamage) -> dict[Any, Any] | None:
    """The table `name` of a config file, or of its backup, which is told; None where there is none: neither file is
    there, which is the caller's to tell, or what is there is damaged. UnreadableError."""
    try:
        loaded = load_config(path)
    except CorruptError as error:
        on_damage(error)
        return None
    if loaded is None:
        return None
    if loaded.source != path:
        tell(f"{path} is missing, empty or damaged: what follows is from its backup, as a broker would read it")
    table = loaded.content.get(name) if isinstance(loaded.content, dict) else None
    if not isinstance(table, dict):
        on_damage(CorruptError(f"holds no table {name}", file=loaded.source))
        return None
    return table
