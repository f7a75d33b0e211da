"""The stores that a query names: one by its path, or several by a list or a pattern, each with its broker.conf."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from rmqctl.formats import errors
from rmqctl.formats.errors import EngineError, NotAStoreError, RmqctlError, UsageError, counted, unreadable
from rmqctl.pipeline.splits import SplitEdgeError
from rmqctl.store.config.config import config_from_properties, read_properties
from rmqctl.store.files.layout import KEPT
from rmqctl.store.files.reading import exists, is_directory
from rmqctl.store.files.remote import absolute_place, address_of, is_address
from rmqctl.store.files.remote_file_system import FsspecFiles, is_wild

_AT_THE_SAME_TIME = 8
_BRACES = re.compile(r"\{([^{}]*)\}")


class NamedStore(NamedTuple):
    """A store that is read: its absolute path as it was given, and its broker.conf with the name that this gives it."""

    path: str
    config: str | None = None
    broker_name: str | None = None


def path_list(text: str) -> tuple[str, ...] | None:
    """Return the paths of a list in JSON, which is how Spark passes `load([a, b])`; None for other texts."""
    if not text.startswith("["):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_list = isinstance(found, list) and found and all(isinstance(one, str) and one for one in found)
    return tuple(found) if is_list else None


def is_pattern(text: str) -> bool:
    """Return whether a path is a pattern: it has *, ?, [ or { in it, and is not the name of an existing file."""
    return is_wild(text) and (is_address(text) or not exists(text))


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
            raise NotAStoreError("no directory matches this pattern", file=path, hint=_how_far(path))
        found += [NamedStore(absolute_place(one), config, config and broker_name(config)) for one in matching]
    _require_apart(found)
    if len(configs) != 1:
        return found
    if len(found) == 1:
        return [found[0]._replace(config=configs[0], broker_name=broker_name(configs[0]))]
    _require_common(configs[0])
    return [one._replace(config=configs[0]) for one in found]


def broker_name(config: str) -> str | None:
    """`brokerName` of a broker.conf; None where it has none. Errors as `read_properties`."""
    return read_properties(Path(config)).get("brokerName", "").strip() or None


def _require_apart(stores: Sequence[NamedStore]) -> None:
    seen: dict[str, str] = {}
    for one in stores:
        resolved = one.path if is_address(one.path) else str(Path(one.path).resolve())
        if resolved in seen:
            raise UsageError("this store is named twice", file=one.path, hint=f"it is {seen[resolved]}, too")
        seen[resolved] = one.path


def _require_common(path: str) -> None:
    config = config_from_properties(read_properties(Path(path)), path)
    if config.store_path_commit_log or config.read_only_commit_log_store_paths:
        raise UsageError(
            "this broker.conf sets the commitlog directory of one store, but several stores are read",
            file=path,
            hint='give each store its own: .option("config", \'["a.conf", "b.conf"]\')',
        )


def _matching(pattern: str) -> Iterator[str]:
    """Return the directories that match a pattern, in the order of their names. {a,b} is either of the two."""
    braces = _BRACES.search(pattern)
    if braces is not None:
        for one in braces[1].split(","):
            yield from _matching(f"{pattern[: braces.start()]}{one}{pattern[braces.end() :]}")
        return
    if is_address(pattern):
        yield from _matching_addresses(address_of(pattern))
        return
    parts = Path(pattern).absolute().parts
    found = [parts[0]]
    for part in parts[1:]:
        found = [os.path.join(folder, name) for folder in found for name in _children(folder, part)]
    yield from (one for one in found if is_directory(one))


def _matching_addresses(pattern: str) -> Iterator[str]:
    """The same on a server: one request for each folder that is looked into, several at the same time."""
    parts = pattern.split("/")
    # behind scheme, nothing, and bucket or host
    root, below = "/".join(parts[:3]), parts[3:]
    if is_wild(root) or not below:
        raise UsageError("what follows :// cannot be a pattern", file=pattern, hint="name the bucket, or the host")
    fixed = next((number for number, part in enumerate(below) if is_wild(part)), len(below) - 1)
    files = FsspecFiles(root)
    found = ["/".join(below[:fixed])]
    with ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
        for part in below[fixed:]:
            names = pool.map(files.folders_in, found)
            found = [
                f"{folder}/{name}".lstrip("/")
                for folder, within in zip(found, names, strict=True)
                for name in within
                if fnmatchcase(name, part) and not _is_hidden(name, part)
            ]
    yield from (f"{root}/{one}" for one in found)


def _how_far(pattern: str) -> str:
    """What to do about a pattern that nothing matches: what of it is there."""
    above, _, last = pattern.rstrip("/").rpartition("/")
    while is_wild(above):
        matching = list(_matching(above))
        if matching:
            return (
                f"{above} matches {counted(len(matching), 'directory', 'directories')}, but {last} is in none of them"
            )
        above, _, further = above.rpartition("/")
        last = f"{further}/{last}"
    return "check the path"


def _children(folder: str, part: str) -> Iterator[str]:
    """The names in a folder that a part of a pattern means; hidden ones, and what rmqctl keeps beside a store, only
    where it says so."""
    if not is_wild(part):
        yield part
        return
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(error, folder, "listed") from error
    yield from (one for one in names if fnmatchcase(one, part) and not _is_hidden(one, part))


def _is_hidden(name: str, part: str) -> bool:
    return (name.startswith(".") and not part.startswith(".")) or (KEPT in name and KEPT not in part)


# Further stores beside the one that a query is about, each under a name of its own, as databases are attached.

MAIN = "main"
"""The schema of the store that is not attached, as DuckDB and SQLite call it."""

# what the engines call schemas and catalogs of theirs
_TAKEN = frozenset(
    (
        MAIN,
        "temp",
        "system",
        "memory",
        "information_schema",
        "pg_catalog",
        "global_temp",
        "default",
        "session",
        "builtin",
    )
)


def attached_stores(given: Sequence[str]) -> dict[str, str]:
    """Return paths by name, of texts NAME=PATH; UsageError for other texts, and for a name that is taken."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, path = text.partition("=")
        name = name.strip()
        if not separator or not path.strip():
            raise UsageError(f"{text!r} attaches no store", hint="write it as b=/data/broker-b/store")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise UsageError(
                f"{name!r} cannot be the name of a store", hint="take letters, digits and _: it is for SQL"
            )
        if name.lower() in _TAKEN or name.lower() in found:
            raise UsageError(f"the name {name!r} is taken", hint="give the store another one")
        found[name.lower()] = absolute(path.strip())
    return found


def absolute(path: str | Sequence[str]) -> str:
    """What the data source takes for a path, a pattern or several paths, seen from any working directory."""
    several = path_list(path) if isinstance(path, str) else tuple(path)
    if several is not None:
        return json.dumps([absolute_place(one) for one in several])
    return absolute_place(str(path))


def options_by_schema(
    path: str | Sequence[str], options: Mapping[str, str], attached: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the options of the data source for each store, by the name of its schema. A broker.conf is about `path`
    alone."""
    further = {name: value for name, value in options.items() if name != "config"}
    return {
        MAIN: {**options, "path": absolute(path)},
        **{name: {**further, "path": absolute(one)} for name, one in attached.items()},
    }


# Errors of the data source as Spark shows them: a sentence first, then where in the code it was raised.
#
# Spark shows what its processes in Python raise by the whole traceback, whose last line says what is wrong. A
# traceback begins with the cause of an error; so the sentence is made its cause, with what to do next.

_Method = TypeVar("_Method", bound=Callable[..., Any])


def sentence_first(method: _Method) -> _Method:
    """A function, or a generator, whose errors of the family begin with their sentence wherever Spark shows them."""

    @functools.wraps(method)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except RmqctlError as error:
            raise error from _sentence(error)

    @functools.wraps(method)
    def iterated(*args: Any, **options: Any) -> Iterator[Any]:
        try:
            yield from method(*args, **options)
        except RmqctlError as error:
            raise error from _sentence(error)

    return cast("_Method", iterated if inspect.isgeneratorfunction(method) else called)


def _sentence(error: RmqctlError) -> RmqctlError:
    return RmqctlError(f"{error}; {error.hint}" if error.hint else str(error))


# What went wrong with a query, as one error of the family: a sentence for people, no stack trace of the JVM.

_LONGEST = 600
_FAMILY: dict[str, type[RmqctlError]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (SplitEdgeError, *vars(errors).values())
    if isinstance(kind, type) and issubclass(kind, RmqctlError)
}
"""Name of an rmqctl error as a traceback prints it -> its class."""
# the last line of a traceback in a Python worker
_RAISED = re.compile(rf"^({'|'.join(map(re.escape, _FAMILY))}): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_PLACE = re.compile(r"\(?line (\d+),? pos(?:ition)? (\d+)\)?")
_TOO_LARGE = re.compile(r"Total size of serialized results of .* is bigger than spark\.driver\.maxResultSize")


class QueryError(UsageError):
    """A query that cannot be answered as it is written."""


def query_error(error: BaseException) -> RmqctlError | None:
    """The rmqctl error that represents an exception of Spark; None for an exception that is not Spark's.

    QueryError for what is wrong with the query itself, what a task raised where it was one of the family, EngineError
    for the rest.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if isinstance(error, RmqctlError):
        return error
    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error)
    raised = _raised_by_a_task(text)
    if raised is not None:
        return raised
    if _TOO_LARGE.search(text):
        return EngineError(
            "the result is larger than the driver is allowed to take",
            hint="allow more with --conf spark.driver.maxResultSize=4g, or write messages with `rmqctl export`",
        )
    condition = _condition(error)
    if condition is not None and not _is_failure(condition, text):
        return QueryError(_spark_sentence(text), hint=_hint(condition))
    return EngineError(
        f"Spark could not carry out the query: {_spark_sentence(text)}", hint="RMQCTL_DEBUG=1 shows what it said"
    )


def _raised_by_a_task(text: str) -> RmqctlError | None:
    found = _RAISED.findall(text)
    if not found:
        return None
    name, message = found[-1]
    return _FAMILY[name](message)


def _condition(error: Any) -> str | None:
    """Spark's name for the kind of error; None where it has none, as for a lost executor."""
    try:
        condition = error.getCondition()
    except Exception:  # noqa: BLE001 - it asks the JVM, which may be what is gone
        return None
    return condition if isinstance(condition, str) and condition else None


def _is_failure(condition: str, text: str) -> bool:
    """Whether not the query is at fault but what carries it out."""
    return condition.startswith(("INTERNAL_ERROR", "PYTHON_DATA_SOURCE", "PYTHON_STREAMING")) or "Traceback (" in text


def _hint(condition: str) -> str | None:
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        from rmqctl.pipeline.views import TABLES

        return f"the views of a store are {', '.join(TABLES)}"
    return None


def _spark_sentence(text: str) -> str:
    """The first sentences of what Spark says, on one line, with the place in the query."""
    place = _PLACE.search(text)
    first = text.strip().partition("\n== SQL")[0].partition("\n\tat ")[0]
    # what follows are plans and advice about Spark's settings
    first = re.split(r";\s*(?:line \d+ pos \d+;?)?\s*\n|\n\n|\nSearch path:|\nTo tolerate the error", first)[0]
    first = first.partition(' If necessary set "spark.sql.ansi.enabled"')[0]
    first = _PLACE.sub("", _STATE.sub("", _CONDITION.sub("", first))).rstrip(" ;.\n")
    sentence = " ".join(first.split())[:_LONGEST]
    return sentence + (f" (line {place[1]}, position {int(place[2]) + _first_column(text)})" if place else "")


def _first_column(text: str) -> int:
    """What to add to Spark's positions, so that the first character of a line is number one."""
    return 0 if "== SQL (line" in text else 1
