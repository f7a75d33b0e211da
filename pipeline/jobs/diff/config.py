"""Two configurations compared: topics, groups, consumer offsets and delay offsets, name by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqctl.formats.errors import CorruptError, UnreadableError
from rmqctl.store.answers.config_offsets import DELAY_FILE, GROUP_TABLE, OFFSET_TABLE, light_offsets
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.homes import GROUPS, TOPICS, offsets_home
from rmqctl.store.files.presence import is_directory
from rmqctl.store.store_files import StoreFiles

TOPIC, GROUP, OFFSET, DELAY = "topic", "group", "offset", "delay offset"
_Table = dict[str, Any]


@dataclass
class ConfigDiff:
    """`rows`: what differs, each with kind, name and both values, None where a side has none. `notes`: what could not
    be compared; `is_certain`: nothing was in the way of comparing."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_certain: bool = True

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs in what could be compared."""
        return not self.rows


def diff_config(a: StoreFiles, b: StoreFiles) -> ConfigDiff:
    """Compare what the folders config/ of two stores say. Where only one of them has that folder nothing is compared,
    which a note says."""
    found = ConfigDiff()
    without = [side for side, files in (("a", a), ("b", b)) if not is_directory(files.layout.config)]
    if len(without) == 1:
        found.notes.append(f"{without[0]} has no folder config: topics, groups and offsets are not compared")
    if without:
        return found
    for kind in (TOPIC, GROUP, OFFSET, DELAY):
        try:
            here, there = _table(a, kind), _table(b, kind)
        except (CorruptError, UnreadableError) as error:
            found.is_certain = False
            found.notes.append(f"{kind}s are not compared: {error}")
            continue
        for name in sorted({*here, *there}):
            if here.get(name) != there.get(name):
                found.rows.append({"kind": kind, "name": name, **_values(here.get(name), there.get(name))})
    return found


def _table(files: StoreFiles, kind: str) -> _Table:
    """Return the rows of a table by their names. CorruptError, UnreadableError."""
    config = files.layout.config
    if kind == TOPIC:
        return _by_name(config / TOPICS, "topicConfigTable")
    if kind == GROUP:
        return _by_name(config / GROUPS, GROUP_TABLE)
    if kind == DELAY:
        return {f"level {level}": offset for level, offset in _by_name(config / DELAY_FILE, OFFSET_TABLE).items()}
    return dict(_offsets(offsets_home(config, files.config).path))


def _by_name(path: Path, table: str) -> _Table:
    content = read_config(path)
    found = content.get(table) if isinstance(content, dict) else None
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _offsets(path: Path) -> Iterator[tuple[str, Any]]:
    for key, queues in {**_by_name(path, OFFSET_TABLE), **light_offsets(read_config(path))}.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in queues.items() if isinstance(queues, dict) else [("", queues)]:
            yield f"{group} in {topic} queue {queue_id}", offset


def _values(a: Any, b: Any) -> dict[str, Any]:
    """Return both values: of objects the fields that differ, as text."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
        a, b = ({name: side[name] for name in names if name in side} for side in (a, b))
    return {"a": _shown(a), "b": _shown(b)}


def _shown(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value
