"""Offsets as the broker keeps them in config/: whose they are, which of them count, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.errors import CorruptError, UnreadableError, UnreadPartError
from rmqctl.formats.hashing import whole_number
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import ConfigFile, backup_of, load_config, parse_config_file, read_config
from rmqctl.store.config.config_start import why_unknown
from rmqctl.store.config.homes import in_database, offsets_home
from rmqctl.store.queues.queue_table import AnyConsumeQueue
from rmqctl.store.read.selection import OnDamage

CONSUMER_FILE = "consumerOffset.json"
LMQ_TABLE = "lmqOffsetTable"
"""In lmqConsumerOffset.json: `topic@group` and the offset in queue 0, of groups that begin with %LMQ%."""
DELAY_FILE = "delayOffset.json"
OFFSET_TABLE = "offsetTable"
GROUP_TABLE = "subscriptionGroupTable"
"""In subscriptionGroup.json: the groups that a broker knows."""
# what a broker and its tools consume with (SubscriptionGroupManager#init, MixAll#isPredefinedGroup); users name their
# groups CID_… too
_OWN_PREFIX = "CID_RMQ_SYS_"
_OWN_GROUPS = frozenset(
    "TOOLS_CONSUMER FILTERSRV_CONSUMER SELF_TEST_C_GROUP SCHEDULE_CONSUMER __MONITOR_CONSUMER CID_ONS-HTTP-PROXY "
    "CID_ONSAPI_PULL CID_ONSAPI_PERMISSION CID_ONSAPI_OWNER CID_DefaultHeartBeatSyncerTopic".split()
)
_SEPARATOR = "@"
_BROADCAST_PARTS = 3

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
    """Whether `text` is the number of a queue or of a level: 0 or a positive int, as Integer.parseInt reads it."""
    return whole_number(text) is not None


def is_own_group(name: str) -> bool:
    """Return whether a group is one of the broker's own, or of its tools."""
    return name in _OWN_GROUPS or name.startswith(_OWN_PREFIX)


def in_one(*details: str | None) -> str:
    """What is to be said of one row, as one sentence."""
    return "; ".join(filter(None, details))


def no_unit(queue: AnyConsumeQueue, queue_offset: int) -> CorruptError:
    """What to say of a unit that should be there."""
    place = f"unit {queue_offset} of {queue.topic!r} queue {queue.queue_id}"
    return CorruptError(f"{place} lies in no file of the queue", file=queue.directory)


def table_in(path: Path, name: str, tell: Say, on_damage: OnDamage) -> dict[Any, Any] | None:
    """Return the table `name` of a config file, or of its backup, which `tell` takes; None where there is none.

    A file that is damaged or cannot be read goes to `on_damage`. Without either file nothing is reported.
    """
    try:
        loaded = _load(path, on_damage)
    except CorruptError as error:
        on_damage(error)
        return None
    if loaded is None:
        return None
    if loaded.source != path:
        tell(f"{path} cannot be used: what follows is from its backup, as a broker would read it")
    table = loaded.content.get(name) if isinstance(loaded.content, dict) else None
    if not isinstance(table, dict):
        on_damage(CorruptError(f"holds no table {name}", file=loaded.source))
        return None
    return table


def _load(path: Path, on_damage: OnDamage) -> ConfigFile | None:
    """Load a config file; its backup where the file cannot be read, which is reported. CorruptError."""
    try:
        return load_config(path)
    except UnreadableError as error:
        on_damage(unread_part(error))
    try:
        return parse_config_file(backup_of(path))
    except UnreadableError as error:
        on_damage(unread_part(error))
        return None


def unread_part(error: UnreadableError) -> UnreadPartError:
    """Return what to report of a small file that cannot be read."""
    return UnreadPartError(error.message, file=error.file, hint=error.hint)


class ConsumerTable(NamedTuple):
    """Offsets of consumer groups by `topic@group` and queue; `table` is None where they are not known, and `missing`
    says why. `path`: the file that a broker keeps them in. `stale`: whose offsets a file has that the broker no longer
    uses, as a RocksDB has them: these groups may well exist, where they are is not known."""

    path: Path
    table: dict[Any, Any] | None
    missing: str = ""
    stale: tuple[OffsetKey, ...] = ()


def consumer_table(config: Path, settings: StoreConfig, tell: Say, on_damage: OnDamage) -> ConsumerTable:
    """Return the offsets in the folder `config`, from the file that a broker with these `settings` reads; `tell` takes
    which one that is, unless it is the usual one."""
    home = offsets_home(config, settings)
    if home.note:
        tell(home.note)
    elsewhere = in_database(home.path)
    table = table_in(home.path, OFFSET_TABLE, tell, on_damage)
    if elsewhere is not None:
        return ConsumerTable(home.path, None, elsewhere, _owners_in(home.path))
    if table is None:
        return ConsumerTable(home.path, None, why_unknown(home.path))
    if home.is_lmq:
        table = {**table, **_light_offsets_in(home.path)}
    return ConsumerTable(home.path, table)


def _light_offsets_in(path: Path) -> dict[Any, Any]:
    try:
        return light_offsets(read_config(path))
    except UnreadableError:  # reported with the first table
        return {}


def _owners_in(path: Path) -> tuple[OffsetKey, ...]:
    """Return whose offsets a file holds that is out of use; none where it does not parse."""
    try:
        loaded = parse_config_file(path)
    except (CorruptError, UnreadableError):
        return ()
    table = loaded.content.get(OFFSET_TABLE) if loaded is not None and isinstance(loaded.content, dict) else None
    owners = map(offset_key, table if isinstance(table, dict) else ())
    return tuple(owner for owner in owners if owner is not None)


def light_offsets(content: object) -> dict[Any, Any]:
    """Return the second table of lmqConsumerOffset.json as the first one has it: by queue, which is always 0."""
    table = content.get(LMQ_TABLE) if isinstance(content, Mapping) else None
    return {key: {0: offset} for key, offset in table.items()} if isinstance(table, dict) else {}
