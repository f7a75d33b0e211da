"""Which of a config file and its backup a broker takes at its start, by version (ConfigManager#load)."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import MAXIMUM_SIZE
from rmqctl.formats.errors import CorruptError, refuse_exhausted
from rmqctl.store.config.config_files import ConfigFile, backup_of, parse_config_data
from rmqctl.store.config.config_tables import convertible_entries, is_white_space, white_space_read_by
from rmqctl.store.config.config_text import VERSIONS, read_torn_text

GOOD, EMPTY, WHITE_SPACE, MISSING, DAMAGED, UNREADABLE = (
    "good", "empty", "of white space alone", "missing", "damaged", "unreadable"
)  # fmt: skip
NOT_A_FILE = "not a regular file"


class FoundFile(NamedTuple):
    """One file as it is. `loaded`: what versions load of a good one; `detail`: why it is damaged or unreadable."""

    path: Path
    state: str
    loaded: ConfigFile | None = None
    detail: str = ""
    data: bytes = b""

    @property
    def is_good(self) -> bool:
        """Whether at least one version loads it."""
        return self.state == GOOD

    @property
    def value(self) -> Any:
        """What a good one holds."""
        return None if self.loaded is None else self.loaded.content

    @property
    def holds_nothing(self) -> bool:
        """Whether a broker takes it for one that is not there."""
        return self.state in (MISSING, EMPTY)

    def is_loaded_by(self, version: str) -> bool:
        """Whether that version's load of it succeeds; one of white space is an empty table to some."""
        if self.state == WHITE_SPACE:
            return version in white_space_read_by(self.path.name.removesuffix(".bak"), self.data)
        return self.loaded is not None and version in self.loaded.read_by

    def table(self) -> dict[Any, Any]:
        """The table of a good one, or what can still be read of a torn one; empty where there is none."""
        name = self.path.name.removesuffix(".bak")
        return convertible_entries(name, self.value if self.is_good else read_torn_text(self.data))


def look_at(path: Path) -> FoundFile:
    """A config file, or a backup, as it is."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return FoundFile(path, UNREADABLE, detail=NOT_A_FILE)
        if status.st_size > MAXIMUM_SIZE:
            return FoundFile(path, DAMAGED, detail=f"{status.st_size} bytes are more than any broker writes")
        data = path.read_bytes()
    except FileNotFoundError:
        return FoundFile(path, MISSING)
    except OSError as error:
        refuse_exhausted(error, path)
        return FoundFile(path, UNREADABLE, detail=str(error.strerror))
    if not data:
        return FoundFile(path, EMPTY)
    if is_white_space(data):
        if b"\0" in data:
            return FoundFile(path, DAMAGED, detail="holds NUL bytes alone", data=data)
        return FoundFile(path, WHITE_SPACE, data=data)
    try:
        return FoundFile(path, GOOD, parse_config_data(path, data), data=data)
    except CorruptError as error:
        return FoundFile(path, DAMAGED, detail=error.message, data=data)


class ConfigPair(NamedTuple):
    """A config file and its backup."""

    file: FoundFile
    backup: FoundFile

    def source_for(self, version: str) -> FoundFile | None:
        """What that version loads: the file, its backup, or for none of them whichever is not there; None where the
        load fails and the broker does not start."""
        if self.file.is_loaded_by(version):
            return self.file
        if self.backup.is_loaded_by(version) or self.backup.holds_nothing:
            return self.backup
        return None

    @property
    def is_lost(self) -> bool:
        """Whether there was something and no version loads it."""
        is_there = not (self.file.state == MISSING and self.backup.state == MISSING)
        return is_there and not self.file.is_good and not self.backup.is_good


def look_at_pair(path: Path) -> ConfigPair:
    """A config file and its backup as they are."""
    return ConfigPair(look_at(path), look_at(backup_of(path)))


_WORDS = {
    GOOD: "does not hold its table",
    EMPTY: "is empty",
    WHITE_SPACE: "is of white space alone",
    MISSING: "is not there",
    DAMAGED: "is damaged",
    UNREADABLE: "cannot be read",
}


def how_it_is(found: FoundFile) -> str:
    """Return the state of a file as a predicate, for a sentence that says why its table is not known."""
    return _WORDS[found.state]


def why_unknown(path: Path) -> str:
    """Return why the table of the config file `path` is not known: whether it is absent, empty, damaged or unreadable,
    and so its backup where there is one."""
    pair = look_at_pair(path)
    if pair.backup.state == MISSING:
        return f"{path} {how_it_is(pair.file)}"
    return f"{path} {how_it_is(pair.file)}, and its backup {how_it_is(pair.backup)}"


def starts_of(pair: ConfigPair) -> str:
    """A sentence on what brokers do at their next start where neither file is good."""
    stopped = [version for version in VERSIONS if pair.source_for(version) is None]
    empty = [version for version in VERSIONS if version not in stopped]
    said = []
    if stopped:
        said.append(f"{_and(stopped)} do{'es' if len(stopped) == 1 else ''} not start")
    if empty:
        said.append(f"{_and(empty)} start{'s' if len(empty) == 1 else ''} with an empty table")
    return "; ".join(said)


def _and(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{', '.join(versions[:-1])} and {versions[-1]}"
