"""The broker's own config files (`config/*.json`) and their backups: reading and writing by the broker's rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import MAXIMUM_SIZE, format_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.formats.hashing import java_long
from rmqctl.store.config.config_tables import is_white_space, load_config_text
from rmqctl.store.config.config_text import VERSIONS
from rmqctl.store.config.homes import refuse_database, uncertain_in
from rmqctl.store.files import io
from rmqctl.store.files.reading import read_small_file

DELETED_TOPICS = "rmqctlDeletedTopics"
"""Topics that were deleted while the log, and perhaps queues, still hold their messages: a key of rmqctl's own in
topics.json. Brokers ignore it, and drop it when they save."""
_TYPE_ATTRIBUTE = "queue.type"


class ConfigFile(NamedTuple):
    """`content` as a broker has it in memory, and the file it came from: the config file or its backup. `forms`: what
    of it is not plain JSON. `read_by`: the versions that load it, with `why_not` of the others."""

    content: Any
    source: Path
    forms: tuple[str, ...] = ()
    read_by: frozenset[str] = frozenset(VERSIONS)
    why_not: str = ""


def deleted_in(content: Any) -> set[str]:
    """Return the topics that the content of a topics.json records as deleted."""
    names = content.get(DELETED_TOPICS) if isinstance(content, Mapping) else None
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def backup_of(path: Path) -> Path:
    """The backup that the broker keeps beside a config file."""
    return path.with_name(path.name + ".bak")


def load_config(path: Path) -> ConfigFile | None:
    """A config file, or its backup where it is missing, empty or damaged, as the broker loads it (ConfigManager#load).

    A file that only some versions load is loaded: it is newer than its backup.
    None if there is neither. CorruptError where what there is cannot be parsed: that is said even where only the file
    itself is damaged and no backup exists, while a broker would start with an empty table. UncertainError where the
    broker has the table in a RocksDB instead; UnreadableError.
    """
    elsewhere = uncertain_in(path)
    if elsewhere is not None:
        raise elsewhere
    damage: CorruptError | None = None
    for candidate in (path, backup_of(path)):
        try:
            loaded = parse_config_file(candidate)
        except CorruptError as error:
            damage = error
            continue
        if loaded is not None:
            return loaded
    if damage is not None:
        raise damage
    return None


def parse_config_file(path: Path) -> ConfigFile | None:
    """One file alone; None if it is missing or empty. CorruptError, UnreadableError."""
    try:
        # one more than can be parsed: what is larger is refused there
        data = read_small_file(path, MAXIMUM_SIZE + 1)
    except FileNotFoundError:
        return None
    return parse_config_data(path, data)


def parse_config_data(path: Path, data: bytes) -> ConfigFile | None:
    """`data` as the content of the config file `path`, or of its backup; None for 0 bytes and white space.

    CorruptError where no version of RocketMQ loads it.
    """
    if len(data) > MAXIMUM_SIZE:  # before it is decoded, which takes many times as much memory
        raise CorruptError(f"config JSON of more than {MAXIMUM_SIZE} bytes is larger than any broker writes", file=path)
    if is_white_space(data) and b"\0" not in data:
        return None
    try:
        found = load_config_text(path.name.removesuffix(".bak"), data)
    except CorruptError as error:
        raise CorruptError(error.message, file=path, hint=error.hint) from error
    return ConfigFile(found.value, path, tuple(form.label for form in found.forms), found.read_by, found.why_not)


def read_config(path: Path) -> Any:
    """Content of a config file or its backup; None if there is neither. Errors as for `load_config`."""
    loaded = load_config(path)
    return None if loaded is None else loaded.content


def write_config(path: Path, content: Any) -> None:
    """Replace a config file in the broker's form; what it held goes to its backup first (MixAll#string2File).

    Unlike the broker's, each file is the old or the new one, never half, and a file that holds nothing of use does not
    replace a good backup. WriteFailedError, UnreadableError; UnsupportedError where the broker has the table in a
    RocksDB, and reads nothing of the file.
    """
    refuse_database(path)
    text = format_config_json(content)
    io.make_directories(path.parent, flushed=True)
    old = next_backup(path)
    if old is not None:
        io.write_whole(backup_of(path), old)
    io.write_whole(path, text.encode("utf-8"))


def next_backup(path: Path) -> bytes | None:
    """What the backup of a config file is to hold once the file is replaced: what it holds now; None where that is of
    no use. UnreadableError."""
    try:
        old = parse_config_file(path)
    except CorruptError:
        return None
    return None if old is None else path.read_bytes()


def next_version(version: Mapping[Any, Any], now: int) -> dict[str, Any]:
    """The `dataVersion` of data that has changed at `now`, ms (DataVersion#nextVersion)."""
    counter, state = version.get("counter"), version.get("stateVersion")
    return {
        "counter": java_long((counter if isinstance(counter, int) else 0) + 1),
        "stateVersion": state if isinstance(state, int) else 0,
        "timestamp": now,
    }


def topic_type(entry: object) -> str | None:
    """The queue.type attribute of a topic's entry in topics.json."""
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    return attributes.get(_TYPE_ATTRIBUTE) if isinstance(attributes, dict) else None
