"""Topics, groups and offsets that a broker keeps in a RocksDB of its config folder, as its JSON files would hold them.

Three forms: a database for each table (configManagerVersion=v1), one for all (useSingleRocksDBForAllConfigs), and that
of configManagerVersion=v2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import CorruptError
from rmqctl.store.files.layout import is_database

if TYPE_CHECKING:
    from rmqctl.store.rocksdb.database import Database

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
LMQ_OFFSETS = "lmqConsumerOffset.json"
"""Where a broker with enableLmq keeps the offsets of all groups (LmqConsumerOffsetManager)."""


class _Home(NamedTuple):
    """Where the two older forms keep a table: the folder and family of its own database, the families of the shared
    one, and the field of its JSON file."""

    folder: str
    family: str
    version_family: str
    field: str


_HOMES = {
    TOPICS: _Home("topics", "topic", "topicVersion", "topicConfigTable"),
    GROUPS: _Home("subscriptionGroups", "subscriptionGroup", "subscriptionGroupVersion", "subscriptionGroupTable"),
    OFFSETS: _Home("consumerOffsets", "consumerOffset", "consumerOffsetVersion", "offsetTable"),
    LMQ_OFFSETS: _Home("consumerOffsets", "consumerOffset", "consumerOffsetVersion", "offsetTable"),
}
_V2, _SINGLE, _OF_5_1 = "rdb", "metadata", "rocksdb"
_VERSION_KEY = b"kvDataVersionKey"
_FORBIDDEN = "forbidden"

# keys of v2 (ConfigHelper, TableId, RecordPrefix): 01, a short for the table, 01 for its version or 02 for data
_TABLE_NUMBERS = {OFFSETS: 1, LMQ_OFFSETS: 1, TOPICS: 3, GROUPS: 4}
_DATA_VERSION, _DATA = b"\1", b"\2"
_SEPARATOR = b"\1"
_JSON = 1
"""The one serialization of topics and groups in v2 (SerializationType)."""

Entries = Iterator[tuple[str, str]]
"""Names of a table with their values, as JSON texts."""


def table_of(name: str) -> str:
    """Return the field of the JSON file `name` that holds its table."""
    return _HOMES[name].field


def database_of(config: Path, name: str) -> Path | None:
    """Return the RocksDB in the folder `config` that holds the table of the file `name`; None without one.

    UnreadableError.
    """
    home = _HOMES.get(name)
    if home is None:
        return None
    for folder in (_V2, _SINGLE, _OF_5_1, home.folder):
        if is_database(config / folder):
            return config / folder
    return None


def databases(config: Path) -> dict[Path, list[str]]:
    """Return the RocksDBs of the folder `config`, each with the files whose tables it holds. UnreadableError."""
    found: dict[Path, list[str]] = {}
    for name in (TOPICS, GROUPS, OFFSETS):
        database = database_of(config, name)
        if database is not None:
            found.setdefault(database, []).append(name)
    return found


def is_readable_form(database: Path) -> bool:
    """Return whether the form of a database is known: that of 5.1 (config/rocksdb) is not."""
    return database.name != _OF_5_1


def takes_newer_files(database: Path) -> bool:
    """Return whether a broker imports a JSON file whose data version is greater (RocksDBTopicConfigManager#merge)."""
    return database.name != _V2


def database_text(database: Path, name: str) -> bytes:
    """Return the table of the file `name` as JSON, with its version, as the broker would write the file.

    Raises: CorruptError for a damaged database, which no broker starts with; UnreadableError.
    """
    from rmqctl.store.rocksdb.database import Database

    opened = Database(database)
    try:
        if database.name == _V2:
            return _v2_text(opened, name)
        return _v1_text(opened, name, _HOMES[name], database.name == _SINGLE)
    except (UnicodeDecodeError, _MisplacedError) as error:
        raise CorruptError(
            f"an entry of {name}'s table is malformed: {error}", file=database, hint="restore config/ from a backup"
        ) from error


class _MisplacedError(ValueError):
    """A key or value that is not of its form."""


def _v1_text(database: Database, name: str, home: _Home, is_single: bool) -> bytes:
    family = home.family if is_single else "default"
    fields = [_field(home.field, _values(database, family))]
    if name == GROUPS:
        fields.append(_field("forbiddenTable", _values(database, _FORBIDDEN)))
    version = database.get(home.version_family if is_single else "kvDataVersion", _VERSION_KEY)
    if version is not None:
        fields.append(f'"dataVersion":{version.decode("utf-8")}')
    return ("{" + ",".join(fields) + "}").encode("utf-8")


def _values(database: Database, family: str) -> Entries:
    for key, value in database.scan(family):
        text = value.decode("utf-8")
        if family == "consumerOffset" or database.folder.name == _HOMES[OFFSETS].folder:
            text = _inner_table(text)
        yield key.decode("utf-8"), text


def _inner_table(text: str) -> str:
    """Return the offsets by queue that the value of a topic and group wraps (RocksDBOffsetSerializeWrapper)."""
    try:
        wrapped = json.loads(text)
    except ValueError as error:
        raise _MisplacedError(str(error)) from error
    table = wrapped.get("offsetTable") if isinstance(wrapped, dict) else None
    if not isinstance(table, dict):
        raise _MisplacedError("a value holds no offsets")
    return json.dumps(table, separators=(",", ":"))


def _v2_text(database: Database, name: str) -> bytes:
    number = b"\1" + _TABLE_NUMBERS[name].to_bytes(2, "big")
    entries = _v2_offsets if name in (OFFSETS, LMQ_OFFSETS) else _v2_named
    fields = [_field(_HOMES[name].field, entries(_v2_data(database, number)))]
    version = database.get("default", number + _DATA_VERSION + b"data_version")
    if version is not None and len(version) == 24:
        state, timestamp, counter = (int.from_bytes(version[at : at + 8], "big", signed=True) for at in (0, 8, 16))
        fields.append(f'"dataVersion":{{"counter":{counter},"stateVersion":{state},"timestamp":{timestamp}}}')
    return ("{" + ",".join(fields) + "}").encode("utf-8")


def _v2_data(database: Database, number: bytes) -> Iterator[tuple[bytes, bytes]]:
    prefix = number + _DATA
    for key, value in database.scan("default", begin=prefix, end=number + b"\3"):
        yield key[len(prefix) :], value


def _v2_name(key: bytes, position: int) -> tuple[str, int]:
    end = position + 2 + int.from_bytes(key[position : position + 2], "big")
    if end > len(key) or end == position + 2:
        raise _MisplacedError(f"name exceeds its key {key.hex()}")
    return key[position + 2 : end].decode("utf-8"), end


def _v2_named(entries: Iterator[tuple[bytes, bytes]]) -> Entries:
    for key, value in entries:
        name, end = _v2_name(key, 0)
        if end != len(key) or value[:1] != bytes((_JSON,)):
            raise _MisplacedError(f"entry of key {key.hex()} is not JSON")
        yield name, value[1:].decode("utf-8")


def _v2_offsets(entries: Iterator[tuple[bytes, bytes]]) -> Entries:
    table: dict[str, dict[int, int]] = {}
    for key, value in entries:
        group, position = _v2_name(key, 0)
        topic, end = _v2_name(key, position + 1)
        separators = key[position : position + 1] + key[end : end + 1]
        if separators != 2 * _SEPARATOR or len(key) != end + 5 or len(value) != 8:
            raise _MisplacedError(f"key {key.hex()} names no group, topic and queue")
        queue_id = int.from_bytes(key[end + 1 :], "big", signed=True)
        table.setdefault(f"{topic}@{group}", {})[queue_id] = int.from_bytes(value, "big", signed=True)
    for name, offsets in table.items():
        yield name, json.dumps(offsets, separators=(",", ":"))


def _field(name: str, entries: Entries) -> str:
    return f'"{name}":{{' + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{text}" for key, text in entries) + "}"
