"""The broker's own config files (`config/*.json`) and their backups: reading and writing by the broker's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import MAXIMUM_SIZE, format_config_json, parse_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.store.files import io
from rmqctl.store.files.reading import read_small_file

_TYPE_ATTRIBUTE = "queue.type"


class ConfigFile(NamedTuple):
    """`content` as parse_config_json gives it, and the file it came from: the config file or its backup."""

    content: Any
    source: Path


def backup_of(path: Path) -> Path:
    """The backup that the broker keeps beside a config file."""
    return path.with_name(path.name + ".bak")


def load_config(path: Path) -> ConfigFile | None:
    """A config file, or its backup where it is missing, empty or damaged, as the broker loads it (ConfigManager#load).

    None if there is neither. CorruptError where what there is cannot be parsed: that is said even where only the file
    itself is damaged and no backup exists, while a broker would start with an empty table. UnreadableError.
    """
    damage: CorruptError | None = None
    for candidate in (path, backup_of(path)):
        try:
            loaded = _parsed(candidate)
        except CorruptError as error:
            damage = error
            continue
        if loaded is not None:
            return loaded
    if damage is not None:
        raise damage
    return None


def _parsed(path: Path) -> ConfigFile | None:
    """One file; None if it is missing or empty."""
    try:
        # one more than can be parsed: what is larger is refused there
        data = read_small_file(path, MAXIMUM_SIZE + 1)
    except FileNotFoundError:
        return None
    if not data.strip():
        return None
    try:
        return ConfigFile(parse_config_json(data.decode("utf-8")), path)
    except UnicodeDecodeError as error:
        raise CorruptError(f"is not UTF-8: {error.reason}", file=path) from error
    except CorruptError as error:
        raise CorruptError(error.message, file=path, hint=error.hint) from error


def read_config(path: Path) -> Any:
    """Content of a config file or its backup; None if there is neither. Errors as for `load_config`."""
    loaded = load_config(path)
    return None if loaded is None else loaded.content


def write_config(path: Path, content: Any) -> None:
    """Replace a config file in the broker's form; what it held goes to its backup first (MixAll#string2File).

    Unlike the broker's, each file is the old or the new one, never half, and a file that holds nothing of use does not
    replace a good backup. WriteFailedError, UnreadableError.
    """
    text = format_config_json(content)
    io.make_directories(path.parent, flushed=True)
    try:
        old = _parsed(path)
    except CorruptError:
        old = None
    if old is not None:
        io.write_whole(backup_of(path), path.read_bytes())
    io.write_whole(path, text.encode("utf-8"))


def topic_type(entry: object) -> str | None:
    """The queue.type attribute of a topic's entry in topics.json."""
    attributes = entry.get("attributes") if isinstance(entry, dict) else None
    return attributes.get(_TYPE_ATTRIBUTE) if isinstance(attributes, dict) else None
