"""Plans that no offset of a group or of a delay level is past the end of its queue, after the log was cut.

A group that is past the end of its queue is set to the end by a broker when it pulls. But messages that come before it
does take the slots up to its offset, and the group never gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.hashing import parse_int
from rmqctl.store.config.config_files import backup_of, parse_config_file
from rmqctl.store.journal.plan import Plan, Staging, install_config
from rmqctl.store.queues.dispatch import SCHEDULE_TOPIC
from rmqctl.store.store_files import StoreFiles

QueueEnds = Mapping[tuple[str, int], int]
"""The end of each queue, by topic and queue id."""
_REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_"
_REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"


def plan_offsets_end(files: StoreFiles, plan: Plan, staging: Staging, ends: QueueEnds) -> None:
    """Plan the offsets in config/ for queues that end at `ends`. Those in queues that are not there stay, and so do
    files that cannot be read."""
    for name, change in _CHANGES.items():
        path = files.layout.config / name
        # a broker reads the backup where the file itself is missing or damaged
        for candidate in (path, backup_of(path)):
            try:
                loaded = parse_config_file(candidate)
            except CorruptError:
                continue
            content = loaded.content if loaded is not None else None
            if isinstance(content, dict) and change(content, ends):
                install_config(plan, staging, candidate, format_config_json(content).encode("utf-8"))


def _groups(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change consumerOffset.json; `pullOffsetTable` is what 5.5.0 keeps beside the committed offsets."""
    changed = False
    for table in ("offsetTable", "pullOffsetTable"):
        for key, offsets in _items(content, table):
            topic, _, group = str(key).partition("@")
            for queue_id in list(offsets) if isinstance(offsets, dict) else ():
                end = ends.get((topic, _as_number(queue_id)))
                if end is None:
                    continue
                # that of POP is the last record that is settled, not the next one to read (PopReviveService)
                is_settled = topic.startswith(_REVIVE_TOPIC) and group == _REVIVE_GROUP
                changed |= _lower(offsets, queue_id, end - 1 if is_settled else end)
    return changed


def _lower(offsets: dict[Any, Any], key: Any, limit: int) -> bool:
    """Set an offset to at most `limit`, without one if that is below 0; return whether it was larger."""
    offset = offsets[key]
    if not isinstance(offset, int) or isinstance(offset, bool) or offset <= limit:
        return False
    if limit < 0:
        del offsets[key]
    else:
        offsets[key] = limit
    return True


def _levels(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change delayOffset.json."""
    return _lower_each(content, "offsetTable", lambda level: ends.get((SCHEDULE_TOPIC, _as_number(level) - 1)))


def _light_queues(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change lmqConsumerOffset.json."""
    return _lower_each(content, "lmqOffsetTable", lambda key: ends.get((str(key).partition("@")[0], 0)))


def _lower_each(content: dict[Any, Any], name: str, end_of: Callable[[Any], int | None]) -> bool:
    table = content.get(name)
    changed = False
    for key in list(table) if isinstance(table, dict) else ():
        end = end_of(key)
        changed |= end is not None and _lower(content[name], key, end)
    return changed


def _ordered(content: dict[Any, Any], ends: QueueEnds) -> bool:
    """Change consumerOrderInfo.json: a pop that took a message that is cut would hide another in its slot."""
    changed = False
    for key, by_queue in _items(content, "table"):
        topic = str(key).partition("@")[0]
        for queue_id in list(by_queue) if isinstance(by_queue, dict) else ():
            end = ends.get((topic, _as_number(queue_id)))
            if end is not None and _largest_taken(by_queue[queue_id]) >= end:
                del by_queue[queue_id]
                changed = True
    return changed


def _largest_taken(last_pop: Any) -> int:
    offsets = last_pop.get("o") if isinstance(last_pop, dict) else None
    if not isinstance(offsets, list) or not offsets or not all(isinstance(one, int) for one in offsets):
        return -1
    first, *distances = offsets
    return int(first + max(distances, default=0))


def _items(content: dict[Any, Any], name: str) -> list[tuple[Any, Any]]:
    table = content.get(name)
    return list(table.items()) if isinstance(table, dict) else []


def _as_number(key: Any) -> int:
    """Return the number of a queue or a level; -1 for a key that is no number."""
    number = parse_int(str(key))
    return -1 if number is None else number


_CHANGES: dict[str, Callable[[dict[Any, Any], QueueEnds], bool]] = {
    "consumerOffset.json": _groups,
    "delayOffset.json": _levels,
    "lmqConsumerOffset.json": _light_queues,
    "consumerOrderInfo.json": _ordered,
}
