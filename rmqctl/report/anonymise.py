"""Replace names in a report: topics, groups, hosts, keys and files, each by the same word everywhere.

A word is a keyed hash of the name, and the key is never written. What is replaced is not what looks like a name, but
every text that is not known to be RocketMQ's or rmqctl's own: a field is kept only where this module lists it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from rmqctl.output.table import visible
from rmqctl.store.answers.config_offsets import is_own_group
from rmqctl.store.config.config_files import is_brokers_own
from rmqctl.store.files.layout import is_file_name
from rmqctl.store.twin.frames import NAME_PREFIXES

_TOPICS = frozenset("topic origin_topic target_topic retry_topic next_topic".split())
_GROUPS = frozenset(("group",))
_KEYS = frozenset("keys unique_key origin_id msg_id".split())
_HOSTS = frozenset("lock_holder command".split())
_PATHS = frozenset("path file".split())
_TEXTS = frozenset("expected found tag tags body".split())
# of a fixed vocabulary, or numbers
_KEPT = frozenset(
    """state kind severity code title broker level way because setting part counted_from unit start_file day clean
    is_well stopped_by subset effect""".split()
)
# folders and files of every store
_LAYOUT = frozenset(
    """commitlog consumequeue consumequeue_ext batchconsumequeue index config timerwheel timerlog checkpoint abort lock
    timercheck topics.json subscriptionGroup.json consumerOffset.json delayOffset.json consumerFilter.json
    consumerOrderInfo.json compaction tieredstore rocksdbstore epochFileCheckpoint""".split()
)
_LETTERS = 8
# what is quoted is taken from the store, and what has one of these in it is an address or a path
_QUOTED = re.compile(r"(?<!\w)(?:'[^']*'|\"[^\"]*\")(?!\w)")
_ADDRESS = re.compile(
    r"\b\d+\.\d+\.\d+\.\d+(?::\d+)?|\[?(?:[0-9a-fA-F]{0,4}:){3,}[0-9a-fA-F]{0,4}\]?"
    r"|\b(?=\d*[A-Fa-f])[0-9A-Fa-f]{20,}\b"  # a message id has a host in it
)
_PATH = re.compile(r"(?<![\w.])/[^\s'\",;]+")
_SHORTEST = 3


def anonymised(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the numbers of stores with their names replaced."""
    return _Words(rows).of_rows()


class _Words:
    """The words that stand for names, of one report."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows
        self._key = secrets.token_bytes(32)
        self._names: dict[str, str] = {}
        self._made: set[str] = set()

    def of_rows(self) -> list[dict[str, Any]]:
        """Return the numbers with every name replaced."""
        for field, value in _texts(self._rows):
            replaced = self._field(field, value)
            if replaced is not None and replaced != value:
                for written in (value, visible(value), repr(value)[1:-1]):
                    self._names.setdefault(written, replaced)
        text = "\n".join(value for field, value in _texts(self._rows) if self._field(field, value) is None)
        # the longest first: others may be parts of it
        found = sorted((name for name in self._names if name in text), key=len, reverse=True)
        whole = "|".join(re.escape(name) for name in found if len(name) >= _SHORTEST)
        # one or two letters are a name where no word of a sentence stands
        short = "|".join(re.escape(name) for name in found if len(name) < _SHORTEST)
        tried = [rf"(?<![A-Za-z0-9])(?:{whole})(?![A-Za-z0-9])"] if whole else []
        tried += [rf"(?<=[@/])(?:{short})(?![A-Za-z0-9])", rf"(?<![A-Za-z0-9])(?:{short})(?=[@/])"] if short else []
        pattern = re.compile("|".join(tried)) if tried else None
        return [_mapped(row, lambda field, value: self._value(field, value, pattern)) for row in self._rows]

    def _value(self, field: str, value: str, pattern: re.Pattern[str] | None) -> str:
        replaced = self._field(field, value)
        if replaced is not None:
            return replaced
        text = value if pattern is None else pattern.sub(lambda match: self._names[match[0]], value)
        text = _PATH.sub(lambda match: self._path(match[0]), text)
        text = _QUOTED.sub(lambda match: self._quoted(match[0]), text)
        return _ADDRESS.sub(lambda match: self._word("host", match[0]), text)

    def _field(self, field: str, value: str) -> str | None:
        """Return the substitute of a field; None for a sentence."""
        if field in _KEPT:
            return value
        if field in _TOPICS:
            return self._topic(value)
        if field in _GROUPS:
            return value if is_own_group(value) else self._word("group", value)
        if field in _KEYS:
            return self._word("key", value)
        if field in _HOSTS:
            return self._word("host", value)
        if field in _TEXTS:
            return self._word("text", value)
        return self._path(value) if field in _PATHS else None

    def _topic(self, topic: str) -> str:
        for prefix in NAME_PREFIXES:
            if topic.startswith(prefix):
                return prefix + self._word("group", topic.removeprefix(prefix))
        return topic if is_brokers_own(topic) else self._word("topic", topic)

    def _path(self, path: str) -> str:
        """Return a path with the names of folders and files that no other store has replaced."""
        return "/".join(self._part(part) for part in PurePath(path).as_posix().split("/"))

    def _part(self, part: str) -> str:
        if not part or part in _LAYOUT or part.isdigit() or is_file_name(part):
            return part
        replaced = self._topic(part)
        if part not in self._names and part not in self._made and replaced.startswith("topic-"):
            replaced = self._word("name", part)
        if not part.isalpha():  # a word alone may be one of a sentence
            self._names.setdefault(part, replaced)
        return replaced

    def _quoted(self, quoted: str) -> str:
        inside = quoted[1:-1]
        is_known = self._topic(inside) == inside or inside.isdigit() or not inside
        return quoted if is_known else quoted[0] + self._word("text", inside) + quoted[-1]

    def _word(self, kind: str, name: str) -> str:
        known = name if name in self._made else self._names.get(name)
        if known is not None:
            return known
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=_LETTERS // 2)
        word = f"{kind}-{digest.hexdigest()}"
        self._made.add(word)
        return word


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text below `value` with the name of its field."""
    if isinstance(value, str | PurePath):
        yield field, str(value)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(one, name)
    elif isinstance(value, Iterable):
        for one in value:
            yield from _texts(one, field)


def _mapped(value: Any, replaced: Callable[[str, str], str], field: str = "") -> Any:
    """Return a copy with every text replaced."""
    if isinstance(value, str | PurePath):
        return replaced(field, str(value))
    if isinstance(value, dict):
        return {name: _mapped(one, replaced, name) for name, one in value.items()}
    if isinstance(value, Iterable):
        return [_mapped(one, replaced, field) for one in value]
    return value
