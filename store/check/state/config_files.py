"""Config files and their backups: what parses, what has a stale end, what only its backup still holds."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.formats.config_json import MAXIMUM_SIZE, parse_config_json
from rmqctl.formats.errors import CorruptError
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.config.config_files import backup_of
from rmqctl.store.config.homes import database_of

_SUFFIX = ".json"
# a string as a whole, so that brackets inside it do not count; nothing is tried twice
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
# file -> the table in it that a broker reads
TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "lmqConsumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
}


class Content(NamedTuple):
    """One file. `state`: good, empty, missing, damaged or unreadable; `whole`: bytes of a good value at its start."""

    path: Path
    state: str
    value: Any = None
    detail: str = ""
    whole: int | None = None

    @property
    def is_good(self) -> bool:
        """Whether it holds a value."""
        return self.state == "good"


def whole_value_size(data: bytes) -> int | None:
    """Bytes of the first JSON object of `data` if more than white space follows it and it parses; else None."""
    text = data.decode("utf-8", "surrogateescape")
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
            if depth == 0:
                return _checked_size(text, match.end())
        elif depth == 0:
            return None
    return None


def _checked_size(text: str, end: int) -> int | None:
    if not text[end:].strip():
        return None
    try:
        parse_config_json(text[:end])
        return len(text[:end].encode("utf-8"))
    except (CorruptError, UnicodeEncodeError):
        return None


def read_content(path: Path) -> Content:
    """A config file as it is."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return Content(path, "unreadable", detail="not a regular file")
        if status.st_size > MAXIMUM_SIZE:
            return Content(path, "damaged", detail=f"{status.st_size} bytes are more than any broker writes")
        data = path.read_bytes()
    except FileNotFoundError:
        return Content(path, "missing")
    except OSError as error:
        return Content(path, "unreadable", detail=str(error.strerror))
    if not data.strip():
        return Content(path, "empty")
    try:
        return Content(path, "good", parse_config_json(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        return Content(path, "damaged", detail=f"is not UTF-8: {error.reason}", whole=whole_value_size(data))
    except CorruptError as error:
        return Content(path, "damaged", detail=error.message, whole=whole_value_size(data))


class ConfigFiles:
    """All config files of a store with their backups, read once."""

    def __init__(self, directory: Path) -> None:
        self.files: dict[str, tuple[Content, Content]] = {}
        for name in _names(directory):
            path = directory / name
            self.files[name] = read_content(path), read_content(backup_of(path))

    def value(self, name: str) -> Any:
        """What a broker would load: the file or its backup; None if neither is good."""
        pair = self.files.get(name)
        return None if pair is None else next((content.value for content in pair if content.is_good), None)

    def table(self, name: str) -> dict[Any, Any]:
        """The table in it; empty if there is none."""
        value = self.value(name)
        found = value.get(TABLES[name]) if isinstance(value, dict) else None
        return found if isinstance(found, dict) else {}

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the files as such."""
        for name, (content, backup) in self.files.items():
            yield from _of_pair(content, backup)
            if content.is_good:
                yield from _of_shape(name, content)


def _names(directory: Path) -> list[str]:
    try:
        entries = os.listdir(directory)
    except OSError:
        return []
    names = {name.removesuffix(".bak") for name in entries if name.removesuffix(".bak").endswith(_SUFFIX)}
    # what a RocksDB holds no broker reads from a file
    return sorted(name for name in names if database_of(directory, name) is None)


def _of_pair(content: Content, backup: Content) -> Iterator[Finding]:
    path = content.path
    for one in (content, backup):
        if one.state == "unreadable":
            code = "RMQ-FILE-007" if one.detail == "not a regular file" else "RMQ-FILE-006"
            yield Finding(code, one.detail, one.path, data_lost=None)
    if content.state == "damaged":
        if content.whole is not None:
            yield Finding(
                "RMQ-CFG-003",
                "bytes of an older, longer version follow the value",
                path,
                content.whole,
                expected=content.whole,
                found=path.stat().st_size,
            )
        elif backup.is_good:
            yield Finding("RMQ-CFG-001", content.detail, path, data_lost=False)
        else:
            yield Finding("RMQ-CFG-002", content.detail, path, data_lost=True)
    elif content.state in ("missing", "empty") and backup.is_good and backup.value:
        yield Finding("RMQ-CFG-004", f"the file is {content.state}, its backup is there", path)
    elif content.state in ("missing", "empty") and backup.state == "damaged":
        text = f"the file is {content.state}, and its backup: {backup.detail}"
        yield Finding("RMQ-CFG-002", text, path, data_lost=True)
    elif backup.state == "damaged":
        yield Finding("RMQ-CFG-005", backup.detail, backup.path)


def _of_shape(name: str, content: Content) -> Iterator[Finding]:
    value = content.value
    if not isinstance(value, dict):
        yield Finding("RMQ-CFG-007", "is no JSON object", content.path, expected="object", found=type(value).__name__)
        return
    table = TABLES.get(name)
    if table is not None and not isinstance(value.get(table, {}), dict):
        yield Finding("RMQ-CFG-007", f"{table} is no JSON object", content.path)
