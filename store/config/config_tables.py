"""The tables of config files as brokers convert them to their own types: numbers in quotes, other spellings."""

from __future__ import annotations

import functools
import marshal
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rmqctl.formats.checksums import parse_long
from rmqctl.formats.errors import CorruptError, RefusedError
from rmqctl.store.config.config_text import ConfigText, Form, read_config_text, versions_taking
from rmqctl.store.config.releases import VERSIONS, Release

_ALL = frozenset(VERSIONS)
_OFFSETS, _LEVELS, _TOPICS, _GROUPS = "offsets", "levels", "topics", "groups"
_LONG, _INT = 63, 31


class FileTable(NamedTuple):
    """The table of one config file. `loads_white_space`, `takes_odd_version`: the versions that take a file of white
    space for an empty one, and a dataVersion that is no object: null, a number or text, a list."""

    name: str
    kind: str
    loads_white_space: frozenset[str]
    takes_odd_version: tuple[frozenset[str], frozenset[str], frozenset[str]]


def _of(*versions: str) -> frozenset[str]:
    return frozenset(versions)


_CONSUMERS = FileTable("offsetTable", _OFFSETS, _of("4.9.8"), (_ALL, _of("4.9.8"), _of("4.9.8", "5.3.3")))
TABLES: Mapping[str, FileTable] = {
    "topics.json": FileTable("topicConfigTable", _TOPICS, _of("4.9.8", "5.3.3"), (_of(), _of(), _of())),
    "consumerOffset.json": _CONSUMERS,
    "lmqConsumerOffset.json": _CONSUMERS,
    "subscriptionGroup.json": FileTable(
        "subscriptionGroupTable", _GROUPS, _of("5.3.3"), (_of("4.9.8"), _of("4.9.8"), _of("4.9.8"))
    ),
    "delayOffset.json": FileTable(
        "offsetTable", _LEVELS, _of("4.9.8", "5.3.3"), (_ALL, _of("4.9.8"), _of("4.9.8", "5.3.3"))
    ),
}
_OBJECTS = frozenset(
    ("topicQueueMapping.json", "consumerFilter.json", "consumerOrderInfo.json", "messageRequestMode.json")
)
"""Files whose entries are not converted here, and which are objects all the same."""
KNOWN_FILES = frozenset(TABLES) | _OBJECTS
"""Files of config/ that brokers read."""
_UNCONVERTED = {"consumerFilter.json": "filterDataByTopic", "consumerOrderInfo.json": "table"}
"""Tables of files whose entries are not converted here."""
_NUMBER = "number"
_ANY, _ANY_NUMBER = "*", "#"
_SHAPES: Mapping[str, Any] = {
    "consumerFilter.json": {
        "filterDataByTopic": {_ANY: {"groupFilterData": {_ANY: {"bornTime": _NUMBER, "deadTime": _NUMBER}}}}
    },
    "consumerOrderInfo.json": {"table": {_ANY: {_ANY_NUMBER: {"popTime": _NUMBER, "l": _NUMBER, "cm": _NUMBER}}}},
    "topicQueueMapping.json": {
        "dataVersion": dict.fromkeys(("counter", "stateVersion", "timestamp"), _NUMBER),
        "topicQueueMappingInfoMap": {_ANY: {"epoch": _NUMBER, "totalQueues": _NUMBER, "hostedQueues": {}}},
    },
    "messageRequestMode.json": {"messageRequestModeMap": {_ANY: {_ANY: {"popShareQueueNum": _NUMBER}}}},
}
"""What these files hold, all of it objects and numbers, or no broker loads the file (asked 4.9.7 and 5.3.3). `*`: any
name, `#`: any whole number; other names may be absent or null, and what is not named is not converted."""
_TEXTS = {_TOPICS: ("topicName",), _GROUPS: ("groupName",)}
_NUMBERS = {
    _TOPICS: ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag"),
    _GROUPS: ("retryQueueNums", "retryMaxTimes", "groupSysFlag", "consumeTimeoutMinute"),
}
_LONGS = {_TOPICS: (), _GROUPS: ("brokerId", "whichBrokerWhenConsumeSlowly")}
# whole tables inside an entry
_INNER = {_TOPICS: ("attributes",), _GROUPS: ("attributes", "groupRetryPolicy")}
_FROM_A_LIST = {_TOPICS: ("topicFilterType",), _GROUPS: ()}
_TRUTHS = {
    _TOPICS: ("order",),
    _GROUPS: (
        "consumeEnable",
        "consumeFromMinEnable",
        "consumeBroadcastEnable",
        "consumeMessageOrderly",
        "notifyConsumerIdsChangedEnable",
    ),
}


def misnamed_topics(table: Mapping[Any, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield topics of topics.json by whose entries a broker registers another topic, and the topicName that these have;
    None without one, with which 5.x does not start (BrokerController#registerBrokerAll, asked 4.9.7, 5.3.3, 5.5.0)."""
    for key, entry in table.items():
        named = entry.get("topicName", "") if isinstance(entry, Mapping) else key
        if named is None or (isinstance(entry, Mapping) and "topicName" not in entry):
            yield str(key), None
        elif str(named) != str(key):
            yield str(key), str(named)


class LoadedText(NamedTuple):
    """`value`: the content with its table as a broker has it in memory. `forms`: as in ConfigText. `read_by`: the
    versions that load it; `why_not`: why the others do not, "" where all do; `passed_over`: what a version that loads
    it leaves out, such as `5.5.0: a name in another spelling`."""

    value: Any
    forms: tuple[Form, ...]
    read_by: frozenset[str]
    why_not: str = ""
    passed_over: str = ""


class _RefusedError(Exception):
    """No version converts a value."""


def load_config_text(name: str, data: bytes) -> LoadedText:
    """What brokers load of `data` as the config file `name`. CorruptError if no version loads it.

    Empty files and white space are the caller's: a file of 0 bytes is one that is not there.
    """
    if len(data) > _KEPT_AT_MOST:
        return _load_text(name, data)
    packed, found = _packed(name, data)
    return found._replace(value=marshal.loads(packed))


# one command asks some files forty times, and of ten thousand topics each reading takes a quarter of a second
_KEPT_AT_MOST = 4 << 20


@functools.lru_cache(maxsize=32)
def _packed(name: str, data: bytes) -> tuple[bytes, LoadedText]:
    """The value packed, for callers change what they get, and the rest."""
    found = _load_text(name, data)
    return marshal.dumps(found.value), found._replace(value=None)


def _load_text(name: str, data: bytes) -> LoadedText:
    text = read_config_text(data)
    table = TABLES.get(name)
    if table is None:
        return _of_object(name, text) if name in _OBJECTS else _loaded(text.value, text.forms, _ALL)
    converter = _Converter(table, list(text.forms))
    try:
        value, read_by = converter.convert(text)
    except _RefusedError as refused:
        raise CorruptError(f"no broker loads it: {refused}") from refused
    found = _loaded(value, tuple(dict.fromkeys(converter.forms)), read_by)
    if not found.read_by:
        raise CorruptError(f"no broker loads it: {found.why_not}")
    return found


def _of_object(name: str, text: ConfigText) -> LoadedText:
    try:
        if isinstance(text.value, dict):
            if name == "topicQueueMapping.json" and text.value.get("topicQueueMappingInfoMap") is None:
                raise _RefusedError("there is no table topicQueueMappingInfoMap")
            _refuse_misshaped(text.value, _SHAPES[name], "the file")
        takers = _ALL if isinstance(text.value, dict) else _takers_of_no_object(text.value)
    except _RefusedError as refused:
        raise CorruptError(f"no broker loads it: {refused}") from refused
    return _loaded(text.value, text.forms, takers)


def _refuse_misshaped(value: Any, shape: Any, where: str) -> None:
    """_RefusedError where a value is of a type that no version converts."""
    if shape is _NUMBER:
        if not isinstance(value, int | float) and not (isinstance(value, str) and parse_long(value) is not None):
            raise _RefusedError(f"{where} is {_unfit(value)}")
        return
    if not isinstance(value, dict):
        raise _RefusedError(f"{where} is a {_kind_of(value)}, not an object")
    every = shape.get(_ANY, shape.get(_ANY_NUMBER))
    for key, item in value.items():
        if _ANY_NUMBER in shape and parse_long(str(key)) is None:
            raise _RefusedError(f"{where}: the number of a queue or a level is text, no number")
        if every is not None or (key in shape and item is not None):
            _refuse_misshaped(item, shape[key] if every is None else every, str(key))


def _takers_of_no_object(value: Any) -> frozenset[str]:
    """Return the versions that load a file which holds something else than an object, as one without entries."""
    if value is None:
        return _ALL
    if isinstance(value, list) and not value:
        return _of("4.9.8", "5.3.3")
    raise _RefusedError(f"a {_kind_of(value)} in place of an object")


def missing_table(name: str, content: Any) -> str | None:
    """The name of the table that an object lacks, or has as null: brokers load such a file as one without entries, and
    write none. None where the table is there, or where `name` has none."""
    table = TABLES[name].name if name in TABLES else _UNCONVERTED.get(name)
    return table if table is not None and isinstance(content, dict) and content.get(table) is None else None


def convertible_entries(name: str, content: Any) -> dict[Any, Any]:
    """The entries of the table in `content` that brokers convert, each by itself; {} where there is no table."""
    table = TABLES.get(name)
    entries = content.get(table.name) if table is not None and isinstance(content, dict) else None
    if table is None or not isinstance(entries, dict):
        return {}
    if _is_converted(table, entries):
        return {key: entry for key, entry in entries.items() if entry or table.kind != _OFFSETS}
    found: dict[Any, Any] = {}
    for key, entry in entries.items():
        if table.kind == _OFFSETS and isinstance(entry, dict):
            queues = {queue: offset for queue, offset in entry.items() if _is_converted(table, {key: {queue: offset}})}
            found |= {key: queues} if queues else {}
        elif _is_converted(table, {key: entry}):
            found[key] = entry
    return found


def _is_converted(table: FileTable, entries: dict[Any, Any]) -> bool:
    try:
        _Converter(table, []).convert(ConfigText({table.name: entries}))
    except _RefusedError:
        return False
    return True


def is_white_space(data: bytes) -> bool:
    """Whether `data` holds white space or NUL bytes alone, or nothing."""
    return not data.removeprefix(BOM_UTF8).strip(b"\0 \t\r\n\f\b\v")


def white_space_read_by(name: str, data: bytes) -> frozenset[str]:
    """The versions that load `data`, which is_white_space, as a table without entries; others take the backup."""
    table = TABLES.get(name)
    if not data or data.strip(b" \t\r\n") or table is None:
        return _of()
    return table.loads_white_space


def _loaded(value: Any, forms: tuple[Form, ...], read_by: frozenset[str]) -> LoadedText:
    takers = read_by & versions_taking(forms)
    without = [version for version in VERSIONS if version not in takers]
    why = ", ".join(form.label for form in forms if not form.versions | form.otherwise >= _ALL)
    if not why and without:
        why = "values that it does not convert"
    odd = {version: [form.label for form in forms if version in form.otherwise] for version in VERSIONS}
    passed_over = "; ".join(f"{version}: {', '.join(labels)}" for version, labels in odd.items() if labels)
    return LoadedText(value, forms, takers, f"{' and '.join(without)}: {why}" if without else "", passed_over)


class _Converter:
    def __init__(self, table: FileTable, forms: list[Form]) -> None:
        self.table = table
        self.forms = forms

    def convert(self, text: ConfigText) -> tuple[Any, frozenset[str]]:
        """The content with its table converted, and the versions that take it as far as `forms` do not say."""
        value = text.value
        if not isinstance(value, dict):
            return value, _takers_of_no_object(value)
        if any(isinstance(key, int) for key in value):
            raise _RefusedError("a number in place of a name")
        content = self._spelled(value)
        read_by = self._version(content)
        if self.table.kind == _GROUPS:
            read_by &= self._newer_takers(lambda part: part._forbidden(content.get("forbiddenTable")))
        if self.table.name in content:
            content[self.table.name] = self._table(content[self.table.name])
        return content, read_by

    def _spelled(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """`value` with the table's name as brokers write it: fastjson finds it in another spelling, too."""
        wanted = _letters(self.table.name)
        if "@type" in value:
            self.forms.append(Form.TYPE)
        names = [key for key in value if key != self.table.name and _letters(key) == wanted]
        if not names:
            return dict(value)
        self.forms.append(Form.OTHER_SPELLING)
        return {self.table.name if key in names else key: item for key, item in value.items()}

    def _version(self, content: Mapping[Any, Any]) -> frozenset[str]:
        version = content.get("dataVersion", {})
        null, plain, listed = self.table.takes_odd_version
        if isinstance(version, dict):
            if self.table.kind != _TOPICS:
                return self._newer_takers(lambda part: part._version_numbers(version))
            self._version_numbers(version)
            return _ALL
        return null if version is None else listed if isinstance(version, list) else plain

    def _version_numbers(self, version: Mapping[Any, Any]) -> None:
        """_RefusedError where the numbers of a dataVersion are not those of one (DataVersion)."""
        if any(isinstance(key, int) for key in version):
            raise _RefusedError("dataVersion: a number in place of a name")
        for name in ("stateVersion", "timestamp", "counter"):
            value = version.get(name, 0)
            if value is None and name == "counter" and self.table.kind in (_TOPICS, _GROUPS):
                raise _RefusedError("dataVersion: counter is null")
            if value in (None, "", "null"):
                continue
            self._number(value, _LONG, f"dataVersion: {name}")
            if Form.TEXT_SPACE in self.forms:
                raise _RefusedError(f"dataVersion: {name} is text, no number")

    def _forbidden(self, table: Any) -> None:
        """_RefusedError where the topics that groups may not read are not a table that brokers convert."""
        if table is None:
            return
        where = "forbiddenTable"
        for key, entry in self._object(table, where).items():
            for topic, number in self._object(entry, f"{where}: {key}").items():
                self._number(number, _INT, f"{where}: {key} {topic}")

    def _newer_takers(self, check: Callable[[_Converter], None]) -> frozenset[str]:
        """The versions that take a part which 4.9.8 does not read; `check` raises _RefusedError for the others."""
        part = _Converter(self.table, [])
        try:
            check(part)
        except _RefusedError:
            return _of("4.9.8")
        return versions_taking(tuple(part.forms)) | _of("4.9.8")

    @staticmethod
    def _object(value: Any, where: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _RefusedError(f"{where} is a {_kind_of(value)}, not an object")
        return value

    def _table(self, table: Any) -> dict[Any, Any] | None:
        if table is None and self.table.kind == _OFFSETS:
            return None  # loaded as such: from then on the broker fails whenever a group commits
        table = self._object(table, self.table.name)
        if self.table.kind == _LEVELS:
            return self._numbers(table, self.table.name)
        return {self._key(key): self._entry(str(key), entry) for key, entry in table.items()}

    def _key(self, key: Any) -> str:
        if isinstance(key, int):
            self.forms.append(Form.NUMBER_FOR_NAME)
        return str(key)

    def _entry(self, key: str, entry: Any) -> dict[Any, Any]:
        entry = self._object(entry, key)
        return self._numbers(entry, key) if self.table.kind == _OFFSETS else self._bean(entry, key)

    def _numbers(self, table: Mapping[Any, Any], where: str) -> dict[Any, Any]:
        """Queue ids or levels with their offsets."""
        found: dict[Any, Any] = {}
        for key, value in table.items():
            number = self._number(key, _INT, f"{where}: the number of a queue or a level")
            found[number] = self._number(value, _LONG, f"{where} {key}")
        return found

    def _number(self, value: Any, bits: int, where: str) -> int:
        if isinstance(value, bool):
            if bits == _LONG:
                self.forms.append(Form.TRUTH_FOR_NUMBER)
            value = int(value)
        elif isinstance(value, float):
            if not math.isfinite(value) or abs(value) >= 2.0**63:
                raise _RefusedError(f"{where} is no whole number")
            value = int(value)
        elif isinstance(value, str):
            value = self._number_in_quotes(value, bits, where)
        if not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
            raise _RefusedError(f"{where} is {_unfit(value)}")
        return value

    def _number_in_quotes(self, text: str, bits: int, where: str) -> int:
        digits = text.replace(",", "")
        if digits.endswith(" ") and bits == _LONG:
            self.forms.append(Form.TEXT_SPACE)
            digits = digits.rstrip(" ")
        whole, dot, fraction = digits.partition(".")
        number = parse_long(whole)
        if number is None:
            raise _RefusedError(f"{where} is text, no number")
        if dot:
            if not fraction.isdecimal():
                raise _RefusedError(f"{where} is text, no number")
            self.forms.append(Form.TEXT_FRACTION if bits == _LONG or fraction.strip("0") else Form.TEXT_NUMBER)
        elif not self.forms or self.forms[-1] is not Form.TEXT_NUMBER:
            self.forms.append(Form.TEXT_NUMBER)
        return number

    def _bean(self, entry: Mapping[Any, Any], where: str) -> dict[Any, Any]:
        """Fields of a topic or a group. Those of null or no text keep their defaults, so they are left out."""
        kind = self.table.kind
        known = _known_fields(kind)
        found = {known.get(_letters(key), key): value for key, value in entry.items()}
        if found.keys() != entry.keys():
            self.forms.append(Form.OTHER_SPELLING)
        converters: tuple[tuple[tuple[str, ...], Callable[[Any, str], Any]], ...] = (
            (_NUMBERS[kind], lambda value, place: self._number(value, _INT, place)),
            (_LONGS[kind], lambda value, place: self._number(value, _LONG, place)),
            (_TRUTHS[kind], self._truth),
        )
        for names, convert in converters:
            for name in names:
                if name not in found:
                    continue
                if found[name] in (None, "", "null"):
                    self.forms.append(Form.NULL_FOR_NUMBER)
                    del found[name]
                else:
                    found[name] = convert(found[name], f"{where}: {name}")
        for name in _TEXTS[kind]:
            if isinstance(found.get(name), int):
                found[name] = str(found[name])
        for name in _INNER[kind]:
            # 4.9.8 has none of them
            if not isinstance(found.get(name), dict | None):
                self.forms.append(Form.NO_OBJECT)
        for name in _FROM_A_LIST[kind]:
            value = found.get(name)
            if not isinstance(value, str | None) and (isinstance(value, bool) or value not in (0, 1)):
                raise _RefusedError(f"{where}: {name} is a {_kind_of(value)} that names nothing")
        return found

    def _truth(self, value: Any, where: str) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value == 1
        if isinstance(value, str) and value.lower() in ("true", "false", "y", "n", "1", "0"):
            self.forms.append(Form.TEXT_NUMBER)
            return value.lower() in ("true", "y", "1")
        raise _RefusedError(f"{where} is neither true nor false")


@functools.cache
def _known_fields(kind: str) -> dict[str, str]:
    return {_letters(name): name for name in (*_TEXTS[kind], *_NUMBERS[kind], *_LONGS[kind], *_TRUTHS[kind])}


# a store of many topics has the same few names of fields in each of them
@functools.lru_cache(maxsize=256, typed=True)
def _letters(name: Any) -> str:
    return str(name).replace("_", "").replace("-", "").lower()


def _kind_of(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "truth value", type(None): "null"}
    return names.get(type(value), "number")


def _unfit(value: Any) -> str:
    """Say why a value is not taken for a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{_kind_of(value)}, not a number"
    return f"{value}, which is out of range" if abs(value) < _LONGEST_SHOWN else "a number that is out of range"


# Attributes of topics and groups, and how a request changes them (TopicAttributes, SubscriptionGroupAttributes,
# AttributeParser, AttributeUtil).

BATCH_QUEUES = "BatchCQ"
QUEUE_TYPE = "queue.type"
MESSAGE_TYPE = "message.type"
_LONGEST = (1 << 63) - 1
_LONGEST_SHOWN = 10**24
_BOOLEANS = ("false", "true")
_LITE_MINUTES = 30 * 24 * 60
# Long.parseLong
_ATTRIBUTES_LONG = re.compile(r"[+-]?[0-9]{1,19}")


class Attribute(NamedTuple):
    """`values`: the words that are allowed, or the smallest and the largest number; empty for any text."""

    values: tuple[str, ...] | tuple[int, int]
    is_changeable: bool = True

    def problem(self, value: str) -> str | None:
        """Return what RocketMQ says against a value; None for a good one."""
        if not self.values:
            return None
        if self.values == _BOOLEANS:
            return None if value.lower() in _BOOLEANS else "boolean attribute format is wrong."
        smallest = self.values[0]
        if isinstance(smallest, str):
            return None if value in self.values else f"value is not in set: [{', '.join(map(str, self.values))}]"
        largest = int(self.values[1])
        if _ATTRIBUTES_LONG.fullmatch(value) is None or not -_LONGEST - 1 <= int(value) <= _LONGEST:
            return f'For input string: "{value}"'
        if not smallest <= int(value) <= largest:
            return f"value is not in range({smallest}, {largest})"
        return None


def topic_attributes(release: Release) -> dict[str, Attribute]:
    """Return the attributes that a topic may have (TopicAttributes)."""
    if not release.message_types:
        return {}
    found = {
        QUEUE_TYPE: Attribute(("SimpleCQ", "BatchCQ"), is_changeable=False),
        "cleanup.policy": Attribute(("DELETE", "COMPACTION"), is_changeable=False),
        MESSAGE_TYPE: Attribute(release.message_types),
        "reserve.time": Attribute((-1, _LONGEST)),
    }
    if release.has_lite_topics:
        found["lite.topic.expiration"] = Attribute((-1, _LITE_MINUTES))
    return found


def group_attributes(release: Release) -> dict[str, Attribute]:
    """Return the attributes that a consumer group may have (SubscriptionGroupAttributes); none before 5.4."""
    if not release.has_lite_topics:
        return {}
    return {
        "priority.factor": Attribute((0, 100)),
        "lite.bind.topic": Attribute(()),
        "lite.sub.client.max.event.cnt": Attribute((10, _LONGEST)),
        "lite.sub.client.quota": Attribute((-1, _LONGEST)),
        "lite.sub.model": Attribute(("Shared", "Exclusive")),
        "lite.sub.reset.offset.exclusive": Attribute(_BOOLEANS),
        "lite.sub.reset.offset.unsubscribe": Attribute(_BOOLEANS),
        "lite.sub.wildcard": Attribute(()),
    }


def changed_attributes(
    known: Mapping[str, Any] | None, change: Mapping[str, str], table: Mapping[str, Attribute]
) -> dict[str, Any]:
    """Return attributes after a change, keys of which begin with `+` or `-`. `known` is None for a new topic or group,
    `table` has the allowed attributes.

    RefusedError with RocketMQ's own words for what it refuses (AttributeUtil#alterCurrentAttributes).
    """
    seen: set[str] = set()
    new = dict(known or {})
    for key in change:
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise _refused("kv string format wrong.")
        if name in seen:
            raise _refused(f"alter duplication key. key: {name}")
        seen.add(name)
        if known is None and sign != "+":
            raise _refused(f"only add attribute is supported while creating topic. key: {name}")
        if sign == "-" and name not in (known or {}):
            raise _refused(f"attempt to delete a nonexistent key: {name}")
        if sign not in ("+", "-"):
            raise _refused(f"wrong format key: {name}")
    for key, value in change.items():
        sign, name = key[:1], key[1:]
        attribute = table.get(name)
        if attribute is None:
            raise _refused(f"unsupported key: {name}")
        if known is not None and not attribute.is_changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            new.pop(name, None)
            continue
        problem = attribute.problem(value)
        if problem is not None:
            raise _refused(problem)
        new[name] = value
    return new


def parsed_change(text: str) -> dict[str, str]:
    """Return the changes of `+name=value,-name` by signed name (AttributeParser#parseToMap). RefusedError."""
    parts = text.split(",") if text else []
    while parts and not parts[-1]:
        parts.pop()  # as Java's split does
    found: dict[str, str] = {}
    for part in parts:
        key, has_value, rest = part.partition("=")
        value = rest.split("=")[0]
        if has_value and not value:
            raise _refused(f"attribute {part} has no value")
        if has_value and "+" not in key:
            raise _refused(f"add/alter attribute format is wrong: {key}")
        if not has_value and "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}")
        if key in found:
            raise _refused(f"key duplication: {key}")
        found[key] = value
    return found


def _refused(remark: str) -> RefusedError:
    return RefusedError(remark, hint="`mqadmin updateTopic -a` and `updateSubGroup` take the same words")
