"""What config files and their backups do to the next start, in the order in which a broker loads them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqctl.formats.wording import counted
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.config_start import DAMAGED, GOOD, MISSING, ConfigPair, FoundFile, look_at_pair
from rmqctl.store.config.config_tables import missing_table
from rmqctl.store.config.homes import OWN_TABLES, database_of
from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.files.presence import has_entries, is_there, status_of

_CONSUMER, _LMQ, _DELAY = "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json"
_BEFORE = {
    "4.9.8": ("topics.json", _CONSUMER, "subscriptionGroup.json", "consumerFilter.json"),
    "5.3.3": (
        "topics.json",
        "topicQueueMapping.json",
        _CONSUMER,
        "subscriptionGroup.json",
        "consumerFilter.json",
        "consumerOrderInfo.json",
    ),
}
_BEFORE["5.5.0"] = _BEFORE["5.3.3"]
"""The files that are loaded before the store, by version (BrokerController#initializeMetadata)."""
_DELETES_FIRST = frozenset(("5.5.0",))
"""Versions that delete a file which they cannot load, before they look at its backup."""
_EMPTY_MEANS = {
    "topics.json": "no topic is configured: clients find none of them until they are created again",
    "topicQueueMapping.json": "static topics have no mapping",
    _CONSUMER: "no group has an offset: each starts again at the first or last message, as its clients say",
    _LMQ: "no group has an offset: each starts again at the first or last message, as its clients say",
    "subscriptionGroup.json": "no group is configured: retries, broadcasting and the like fall back to defaults",
    "consumerFilter.json": "SQL filters are unknown until their consumers subscribe again",
    "consumerOrderInfo.json": "orderly POP consumers may get messages twice",
    _DELAY: "all delayed messages that are still in their queues are delivered again",
}


class ConfigStep(NamedTuple):
    """What a start makes of one config file. `source`: file, backup or nothing; None where the broker ends there.

    `is_harmful`: something that was written is not loaded. `moves`: offsets that go back, as far as the damaged file
    can still be read: group, topic, queue id or None, from, to.
    """

    file: str
    source: str | None
    is_harmful: bool
    detail: str
    moves: tuple[dict[str, Any], ...] = ()

    def row(self) -> dict[str, Any]:
        """As one object with stable names."""
        return {**self._asdict(), "moves": list(self.moves)}


@dataclass(slots=True)
class ConfigStart:
    """The loads before the store, and that of the delay offsets after it."""

    version: str
    steps: list[ConfigStep] = field(default_factory=list)
    delay_offsets: dict[int, int] = field(default_factory=dict)
    error: str | None = None
    """Why the broker ends before it looks at the store."""
    error_after: str | None = None
    """Why it ends after that."""


def start_of_config(layout: StoreLayout, config: StoreConfig, version: str) -> ConfigStart:
    """What the start of `version` makes of the config folder. Nothing is changed."""
    found = ConfigStart(version)
    for name in _BEFORE[version]:
        if database_of(layout.config, name) is not None:
            continue  # it is not loaded from the file
        wanted = _LMQ if name == _CONSUMER and config.enable_lmq else name
        pair = look_at_pair(layout.config / wanted)
        waits = _waits_for(pair, version)
        if waits is None:
            found.steps += _steps(pair, version)
        if waits is not None or pair.source_for(version) is None:
            found.error = waits or _error(pair)
            return found
    found.steps += _gone(layout)
    found.error_after = next(filter(None, _waits_for_metrics(layout, config, version)), None)
    pair = look_at_pair(layout.config / _DELAY)
    waits = _waits_for(pair, version)
    if waits is None:
        found.steps += _steps(pair, version)
    source = pair.source_for(version)
    if waits is not None or source is None:
        found.error_after = found.error_after or waits or _error(pair)
    else:
        found.delay_offsets = source.table() if source.state == GOOD else {}
    return found


def _gone(layout: StoreLayout) -> Iterator[ConfigStep]:
    """Yield tables that a broker keeps from its first start on, where the others are there and one is not."""
    absent = [name for name in OWN_TABLES if not _is_kept(layout, name)]
    if len(absent) < len(OWN_TABLES) - 1:
        for name in absent:
            is_lost = name == "topics.json" and has_entries(layout.consumequeue)
            text = f"{name} and its backup are missing, beside others: {_EMPTY_MEANS[name]}"
            yield ConfigStep(name, "nothing", is_lost, text)


def _is_kept(layout: StoreLayout, name: str) -> bool:
    """Whether the table is anywhere: in the file, its backup, the file of light queues, or a RocksDB."""
    names = (name, _LMQ) if name == _CONSUMER else (name,)
    paths = [path for one in names for path in (layout.config / one, backup_of(layout.config / one))]
    return database_of(layout.config, name) is not None or any(is_there(path) for path in paths)


def _waits_for_metrics(layout: StoreLayout, config: StoreConfig, version: str) -> Iterator[str | None]:
    if version != "4.9.8":
        for name in ("timermetrics", "transactionMetrics") if config.timer_wheel_enable else ("transactionMetrics",):
            yield _waits_for(look_at_pair(layout.config / name), version)


def _waits_for(pair: ConfigPair, version: str) -> str | None:
    """Return why a load never ends: it opens a fifo, and waits for a process that writes into it."""
    for one in pair:
        status = status_of(one.path)
        if status is not None and stat.S_ISFIFO(status.st_mode):
            return f"none is logged: the broker waits without end for a process that writes into the fifo {one.path}"
        if one.is_loaded_by(version):
            break
    return None


def _error(pair: ConfigPair) -> str:
    """In the broker's words, with the reason."""
    return (
        f"load {pair.backup.path} Failed: it is {_state(pair.backup)}, and {pair.file.path.name} is {_state(pair.file)}"
    )


def _state(found: FoundFile) -> str:
    return f"{found.state} ({found.detail})" if found.detail else found.state


def _steps(pair: ConfigPair, version: str) -> Iterator[ConfigStep]:
    """Nothing where the file itself is loaded as it should be, or was never there."""
    file, backup = pair
    name = file.path.name
    source = pair.source_for(version)
    was = f"{name} is {_state(file)}" if file.state != GOOD else f"{name} is not loaded ({_why(file, version)})"
    is_deleted = version in _DELETES_FIRST and file.state != MISSING
    copy_first = f". {version} deletes config/{name}: copy it before the start" if is_deleted else ""
    if source is None:
        stops = f"{was}, its backup is {_state(backup)}: the broker does not start{copy_first}"
        yield ConfigStep(name, None, True, stops)
    elif source is file:
        if file.state != GOOD or _is_empty(file):
            yield ConfigStep(name, "nothing", True, f"{name} holds no table: {_EMPTY_MEANS[name]}")
    elif source.state == GOOD:
        moves = tuple(_moves(file, backup))
        deleted = ", after it has deleted the file" if is_deleted else ""
        said = [f"{was}: the broker takes the backup, which is older{deleted}", _said_of(moves, file)]
        yield ConfigStep(name, "backup", file.state != MISSING, "; ".join(filter(None, said)), moves)
    elif file.state != MISSING or backup.state != MISSING:
        lost = f"{was}, its backup is {backup.state}: {_EMPTY_MEANS[name]}{copy_first}"
        yield ConfigStep(name, "nothing", True, lost)


def _is_empty(found: FoundFile) -> bool:
    """Whether what is loaded has no table although it is the whole file: null, a list without items, or an object
    without it."""
    name, value = found.path.name, found.value
    return name in _EMPTY_MEANS and (not isinstance(value, dict) or missing_table(name, value) is not None)


def _why(file: FoundFile, version: str) -> str:
    loaded = file.loaded
    return f"{version} does not take {', '.join(loaded.forms)}" if loaded is not None else version


def _said_of(moves: tuple[dict[str, Any], ...], file: FoundFile) -> str:
    if moves:
        groups = {move["group"] for move in moves} - {None}
        whose = f" of {counted(len(groups), 'group')}" if groups else ""
        most = max(move["from"] - (move["to"] or 0) for move in moves)
        return f"{counted(len(moves), 'offset')}{whose} go back, by up to {most}"
    if file.state == DAMAGED and not file.table() and file.path.name in (_CONSUMER, _LMQ, _DELAY):
        return "how far offsets go back cannot be read any more"
    return ""


def _moves(file: FoundFile, backup: FoundFile) -> Iterator[dict[str, Any]]:
    """Offsets that were further in the file than in the backup."""
    name = file.path.name
    newer, older = file.table(), backup.table()
    if name == _DELAY:
        for level, offset in newer.items():
            if offset > older.get(level, 0):
                yield {"group": None, "topic": None, "queue_id": level - 1, "from": offset, "to": older.get(level)}
    elif name in (_CONSUMER, _LMQ):
        for key, queues in newer.items():
            topic, _, group = key.partition("@")
            before = older.get(key, {})
            for queue_id, offset in queues.items():
                if offset > before.get(queue_id, -1):
                    yield {
                        "group": group,
                        "topic": topic,
                        "queue_id": queue_id,
                        "from": offset,
                        "to": before.get(queue_id),
                    }
