"""Names of topics and groups in config files, and which of them are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmqctl.store.config.config_files import may_be_name
from rmqctl.store.files.layout import is_safe_topic

_TOPIC, _GROUP = "topic", "group"
_PAIRS = "topic@group"
# table of a file -> what its keys are, what the keys of the table inside an entry are, and which field holds the latter
_TABLES: Mapping[str, tuple[tuple[str, str, str | None, str | None], ...]] = {
    "topics.json": (("topicConfigTable", _TOPIC, None, None),),
    "subscriptionGroup.json": (
        ("subscriptionGroupTable", _GROUP, None, None),
        ("forbiddenTable", _GROUP, _TOPIC, None),
    ),
    "consumerOffset.json": (("offsetTable", _PAIRS, None, None),),
    "lmqConsumerOffset.json": (("offsetTable", _PAIRS, None, None), ("lmqOffsetTable", _PAIRS, None, None)),
    "consumerFilter.json": (("filterDataByTopic", _TOPIC, _GROUP, "groupFilterData"),),
    "consumerOrderInfo.json": (("table", _PAIRS, None, None),),
    "messageRequestMode.json": (("messageRequestModeMap", _TOPIC, _GROUP, None),),
    "topicQueueMapping.json": (("topicQueueMappingInfoMap", _TOPIC, None, None),),
}
NAMING_FILES = tuple(_TABLES)
"""Files of config/ that name topics or groups."""
_OWN_NAMES = {_TOPIC: "topicName", _GROUP: "groupName"}


def wrong_names(file: str, content: Any) -> Iterator[tuple[str, str, bool]]:
    """Yield the wrong names in the `content` of the config file `file`: "topic" or "group", the name, and whether it
    leads out of the store; others are those that no broker takes."""
    for kind, name in dict.fromkeys(_names(file, content)):
        if kind == _GROUP and name.startswith("%LMQ%"):  # of an MQTT client: its id, which no folder is called by
            continue
        is_leaving = not is_safe_topic(name)
        if is_leaving or not may_be_name(kind, name):
            yield kind, name, is_leaving


def _names(file: str, content: Any) -> Iterator[tuple[str, str]]:
    for table, kind, inner_kind, field in _TABLES[file]:
        for key, entry in _object(content, table).items():
            words = str(key).split("@") if kind == _PAIRS else [str(key)]
            yield from zip((_TOPIC, _GROUP) if kind == _PAIRS else (kind,), words, strict=False)
            # a broker goes by the name inside where it registers a topic
            own = entry.get(_OWN_NAMES[kind]) if kind != _PAIRS and isinstance(entry, dict) else None
            if isinstance(own, str) and inner_kind is None:
                yield kind, own
            inner = entry if field is None else _object(entry, field)
            if inner_kind is not None and isinstance(inner, dict):
                yield from ((inner_kind, str(one)) for one in inner)


def _object(content: Any, name: str) -> dict[Any, Any]:
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}
