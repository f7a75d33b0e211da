"""Config files and their backups: what parses, what has a stale end, what only its backup still holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, refuse_exhausted
from rmqctl.formats.wording import counted
from rmqctl.store.check.catalogue.finding import Finding
from rmqctl.store.config.config_files import deleted_in
from rmqctl.store.config.config_start import (
    DAMAGED,
    EMPTY,
    GOOD,
    MISSING,
    NOT_A_FILE,
    UNREADABLE,
    WHITE_SPACE,
    ConfigPair,
    FoundFile,
    look_at_pair,
    starts_of,
)
from rmqctl.store.config.config_tables import TABLES, missing_table
from rmqctl.store.config.homes import LMQ_OFFSETS, OFFSETS, OWN_TABLES, TOPICS, database_of
from rmqctl.store.files.layout import is_safe_topic
from rmqctl.store.files.presence import has_entries

_SUFFIX = ".json"
# a string as a whole, so that brackets inside it do not count; nothing is tried twice
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
KNOWN_FROM_ELSEWHERE = ("topics.json", "subscriptionGroup.json")
"""Files whose names can be found again: topics by their queues, groups by their offsets."""
_FILTERS = "consumerFilter.json"
_LONGEST_NAME = 255
# a broker puts its own name and its cluster's among the topics without a look at their characters
_USUAL_NAME = re.compile(r"[%|a-zA-Z0-9_.:-]+")


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


class ConfigFiles:
    """All config files of a store with their backups, read once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files: dict[str, ConfigPair] = {name: look_at_pair(directory / name) for name in _names(directory)}

    def value(self, name: str) -> Any:
        """What a broker would load: the file or its backup; None if neither is good."""
        pair = self.files.get(name)
        return None if pair is None else next((found.value for found in pair if found.is_good), None)

    def table(self, name: str) -> dict[Any, Any]:
        """The table in it; empty if there is none."""
        value = self.value(name)
        found = value.get(TABLES[name].name) if isinstance(value, dict) else None
        return found if isinstance(found, dict) else {}

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the files as such, and with the names in them."""
        for name, pair in self.files.items():
            yield from _of_pair(pair)
            if pair.file.is_good:
                yield from _of_shape(name, pair.file)
        yield from self._missing()
        yield from self._names()

    def _missing(self) -> Iterator[Finding]:
        """Yield the file that is gone where the others of a broker are there.

        A folder with one of them alone was not left by a broker: a library that wrote the store needs no other.
        """
        present = [name for name in OWN_TABLES if name in self.files and not self._is_record_alone(name)]
        for name in OWN_TABLES:
            if len(present) > 1 and name not in present and not self._is_elsewhere(name):
                beside = ", ".join(present)
                text = f"neither it nor its backup is there, beside {beside}"
                if self._is_record_alone(name):
                    text = f"the file names no topic, only those that `purge` removed, beside {beside}"
                if name == TOPICS and has_entries(self._directory.parent / "consumequeue"):
                    yield Finding("RMQ-CFG-050", text, self._directory / name, data_lost=True)
                else:
                    yield Finding("RMQ-CFG-022", text, self._directory / name)

    def _is_record_alone(self, name: str) -> bool:
        """Return whether the file is a topics.json that names deleted topics and no other."""
        return name == TOPICS and bool(deleted_in(self.value(name))) and not self.table(name)

    def _is_elsewhere(self, name: str) -> bool:
        """Whether the table is in a RocksDB, or in the file of a broker with enableLmq."""
        is_lmq = name == OFFSETS and LMQ_OFFSETS in self.files
        return is_lmq or database_of(self._directory, name) is not None

    def _names(self) -> Iterator[Finding]:
        topics = [("topics.json", "topic", str(key)) for key in self.table("topics.json")]
        groups = [("subscriptionGroup.json", "group", str(key)) for key in self.table("subscriptionGroup.json")]
        for key in self.table("consumerOffset.json"):
            for kind, name in zip(("topic", "group"), str(key).split("@"), strict=False):
                groups.append(("consumerOffset.json", kind, name))
        for file, kind, name in dict.fromkeys(topics + groups):
            if is_safe_topic(name) and len(name) <= _LONGEST_NAME and _USUAL_NAME.fullmatch(name):
                continue
            is_leaving = not is_safe_topic(name)
            text = "could lead out of the store's folders" if is_leaving else "is one that no broker takes"
            code = "RMQ-CFG-023" if is_leaving else "RMQ-CFG-024"
            topic = name if kind == "topic" else None
            yield Finding(code, f"{kind} name {name!r} {text}", self._directory / file, topic=topic, found=name)


def _names(directory: Path) -> list[str]:
    try:
        entries = os.listdir(directory)
    except OSError as error:
        refuse_exhausted(error, directory)
        return []
    names = {name.removesuffix(".bak") for name in entries if name.removesuffix(".bak").endswith(_SUFFIX)}
    # what a RocksDB holds no broker reads from a file
    return sorted(name for name in names if database_of(directory, name) is None)


def _of_pair(pair: ConfigPair) -> Iterator[Finding]:
    file, backup = pair
    path = file.path
    for one in pair:
        if one.state == UNREADABLE:
            code = "RMQ-FILE-007" if one.detail == NOT_A_FILE else "RMQ-FILE-006"
            # consumers send their filters again when they subscribe; the other files hold what nothing else does
            is_kept_elsewhere = path.name == _FILTERS or (one is backup and file.is_good)
            yield Finding(code, one.detail, one.path, data_lost=False if is_kept_elsewhere else None)
    whole = whole_value_size(file.data) if file.state == DAMAGED else None
    if whole is not None:
        text = "bytes of an older, longer version follow the value"
        yield Finding("RMQ-CFG-003", text, path, whole, expected=whole, found=len(file.data))
    elif file.state == GOOD:
        yield from _of_good(file, backup)
    elif file.state == MISSING and backup.state == MISSING:
        return
    elif backup.is_good:
        if file.state == DAMAGED:
            yield Finding("RMQ-CFG-001", file.detail, path, data_lost=False)
        elif file.state != UNREADABLE and (backup.value or file.state != MISSING):
            yield Finding("RMQ-CFG-004", f"the file is {file.state}, its backup is there", path)
    elif UNREADABLE not in (file.state, backup.state):
        said = [f"the {what} is {_state(one)}" for what, one in (("file", file), ("backup", backup))]
        most = max(len(one.table()) for one in pair)
        readable = f"; {counted(most, 'entry', 'entries')} can still be read" if most else ""
        text = f"{', '.join(said)}: {starts_of(pair)}{readable}"
        fix = None if most or path.name in KNOWN_FROM_ELSEWHERE else ""
        yield Finding("RMQ-CFG-002", text, path, data_lost=True, fix=fix)


def _of_good(file: FoundFile, backup: FoundFile) -> Iterator[Finding]:
    loaded = file.loaded
    assert loaded is not None
    if not isinstance(loaded.content, dict):
        return  # its shape is a finding of its own
    if loaded.why_not:
        text = f"{', '.join(loaded.forms) or 'values of another kind'}; not loaded by {loaded.why_not}"
        yield Finding("RMQ-CFG-021", text, file.path)
    elif loaded.forms:
        yield Finding("RMQ-CFG-020", ", ".join(loaded.forms), file.path)
    if backup.state in (DAMAGED, EMPTY, WHITE_SPACE):
        yield Finding("RMQ-CFG-005", backup.detail or f"it is {backup.state}", backup.path)


def _state(found: FoundFile) -> str:
    return f"damaged ({found.detail})" if found.state == DAMAGED else found.state


def _of_shape(name: str, found: FoundFile) -> Iterator[Finding]:
    value = found.value
    if not isinstance(value, dict):
        yield Finding("RMQ-CFG-007", "is no JSON object", found.path, expected="object", found=type(value).__name__)
        return
    table = missing_table(name, value)
    if table is not None:
        yield Finding("RMQ-CFG-007", f"holds no {table}", found.path, expected=table, found="nothing")
