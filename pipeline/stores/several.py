"""The stores that a query names: one by its path, or several by a list or a pattern, each with its broker.conf."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import NotAStoreError, UnreadableError, UsageError
from rmqctl.store.config.config import config_from_properties, read_properties
from rmqctl.store.files.presence import exists, is_directory

_MAGIC = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")


class NamedStore(NamedTuple):
    """A store that is read: its absolute path as it was given, and its broker.conf with the name that this gives it."""

    path: str
    config: str | None = None
    broker_name: str | None = None


def path_list(text: str) -> tuple[str, ...] | None:
    """The paths of a list in JSON, which is how Spark hands over `load([a, b])`; None for what is none."""
    if not text.startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_list = isinstance(found, list) and found and all(isinstance(one, str) and one for one in found)
    return tuple(found) if is_list else None


def is_pattern(text: str) -> bool:
    """Whether a path stands for all that match it: it has *, ?, [ or { in it, and nothing is really called so."""
    return bool(_MAGIC.search(text)) and not exists(text)


def named_stores(paths: Sequence[str], configs: Sequence[str] = ()) -> list[NamedStore]:
    """The stores at paths, each of which may be a pattern, in this order.

    `configs`: a broker.conf for each path, or one for all of them. NotAStoreError for a pattern that no directory
    matches, UnreadableError where that cannot be known; UsageError for a store that is named twice, and for a
    broker.conf that can only be one store's.
    """
    if len(configs) > 1 and (len(configs) != len(paths) or any(map(is_pattern, paths))):
        raise UsageError(
            f"there are {len(configs)} broker.conf for {len(paths)} paths",
            hint="name the stores one by one, and as many broker.conf in the same order; or one for all",
        )
    found: list[NamedStore] = []
    for number, path in enumerate(paths):
        config = configs[number] if len(configs) > 1 else None
        matching = list(_matching(path)) if is_pattern(path) else [path]
        if not matching:
            raise NotAStoreError("no directory matches this pattern", file=path, hint="check the path")
        found += [NamedStore(str(Path(one).absolute()), config, config and broker_name(config)) for one in matching]
    _require_apart(found)
    if len(configs) != 1:
        return found
    if len(found) == 1:
        return [found[0]._replace(config=configs[0], broker_name=broker_name(configs[0]))]
    _require_common(configs[0])
    return [one._replace(config=configs[0]) for one in found]


def broker_name(config: str) -> str | None:
    """`brokerName` of a broker.conf; None where it has none. Errors as `read_properties`."""
    return read_properties(Path(config)).get("brokerName") or None


def _require_apart(stores: Sequence[NamedStore]) -> None:
    seen: dict[str, str] = {}
    for one in stores:
        resolved = str(Path(one.path).resolve())
        if resolved in seen:
            raise UsageError("this store is named twice", file=one.path, hint=f"it is {seen[resolved]}, too")
        seen[resolved] = one.path


def _require_common(path: str) -> None:
    config = config_from_properties(read_properties(Path(path)), path)
    if config.store_path_commit_log or config.read_only_commit_log_store_paths:
        raise UsageError(
            "this broker.conf says where the commitlog of one store lies, and several are read",
            file=path,
            hint='give each store its own: .option("config", \'["a.conf", "b.conf"]\')',
        )


def _matching(pattern: str) -> Iterator[str]:
    """The directories that a pattern stands for, in the order of their names. {a,b} is either of the two."""
    braces = _BRACES.search(pattern)
    if braces is not None:
        for one in braces[1].split(","):
            yield from _matching(f"{pattern[: braces.start()]}{one}{pattern[braces.end() :]}")
        return
    parts = Path(pattern).absolute().parts
    found = [parts[0]]
    for part in parts[1:]:
        found = [os.path.join(folder, name) for folder in found for name in _children(folder, part)]
    yield from (one for one in found if is_directory(one))


def _children(folder: str, part: str) -> Iterator[str]:
    """The names in a folder that a part of a pattern means; hidden ones only where it says so."""
    if not _MAGIC.search(part):
        yield part
        return
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UnreadableError(f"cannot be listed: {error.strerror}", file=folder) from error
    yield from (one for one in names if fnmatchcase(one, part) and (part.startswith(".") or not one.startswith(".")))
