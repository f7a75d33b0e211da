"""The options of the data source: what may be given to `spark.read.format("rocketmq")`, checked and with defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.formats.properties import split_keys
from rmqctl.pipeline.source.tables import TABLES
from rmqctl.pipeline.splits.splits import SPLIT_SIZE
from rmqctl.store.config.config import StoreConfig, read_broker_conf

OPTIONS: dict[str, str] = {
    "path": "the store's directory, seen under this path by the driver and every executor (also: store, or load(PATH))",
    "config": "a broker.conf, read by the driver: sizes, paths, delay levels",
    "view": f"which table: {', '.join(TABLES)}; messages if not given",
    "columns": "only these columns, separated by commas: Spark does not tell a Python source which ones a query needs",
    "split_size": "bytes of commitlog a task, as 134217728 or 128m; 0: one task a file",
    "clock_tolerance": "how far the broker's clock was ever set back, as 90s or 1h: a filter by store_timestamp skips "
    "parts of the log that lie further away; none: it skips nothing",
    "starting_offset": "earliest, latest or a physical offset: where to begin; streams: only without a checkpoint",
    "starting_timestamp": "ms since 1970, instead of starting_offset: from the first message stored then or later on",
    "ending_offset": "latest or a physical offset, before which reading ends; not of streams",
    "subscribe": "only messages of these topics, separated by commas",
    "subscribe_pattern": "only messages of topics that match this regular expression, as Python has it, as a whole",
    "keys": "only messages with one of these keys, separated by spaces, be it the unique key or one of KEYS; Spark "
    "hands over no array_contains(keys, ...)",
    "key_index": "for keys: checked, what the key index does not know is read; trusted, the index alone says where "
    "messages are, as far as it reaches; off, the log is walked",
    "min_partitions": "about so many tasks at least: makes split_size smaller",
    "max_bytes": "streams: bytes of commitlog a micro-batch, as 512m; all there is if not given",
    "fail_on_data_loss": "streams: whether messages that were removed before they were read end the query, or a log "
    "that was cut back or replaced; true",
    "on_changed_log": "streams: what to do where the log was cut back or replaced: fail, or go on from fork (the last "
    "place known to be the same), earliest or latest; fail, and fork with fail_on_data_loss=false",
}
"""Every option with its meaning, for documents and for the error about an unknown one."""

_HOUR = 3_600_000
CLOCK_TOLERANCE = _HOUR
"""In ms. No clock of a server in order is set back further, and what was set back is noticed between two splits."""

_ALIASES = {"store": "path", "splitsize": "split_size", "clocktolerance": "clock_tolerance"}
_ALIASES |= {"startingoffset": "starting_offset", "maxbytes": "max_bytes", "failondataloss": "fail_on_data_loss"}
_ALIASES |= {"keyindex": "key_index", "key": "keys"}
_ALIASES |= {"onchangedlog": "on_changed_log", "endingoffset": "ending_offset", "minpartitions": "min_partitions"}
# as the source `kafka` of Spark calls them
_ALIASES |= {"startingoffsets": "starting_offset", "endingoffsets": "ending_offset"}
_ALIASES |= {"subscribepattern": "subscribe_pattern", "startingtimestamp": "starting_timestamp"}
_NOT_OURS = {
    "maxoffsetspertrigger": 'a micro-batch is measured in bytes of the log: .option("max_bytes", "128m")',
    "assign": 'write .option("subscribe", TOPIC) and where("queue_id = 0")',
}
CHECKED, TRUSTED, OFF = KEY_INDEX = ("checked", "trusted", "off")
ON_CHANGED_LOG = ("fail", "fork", "earliest", "latest")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "h": _HOUR, "d": 24 * _HOUR}


class SourceOptions(NamedTuple):
    """Options with their defaults. `clock_tolerance` in ms, None: nothing is skipped by time; sizes in bytes."""

    path: str
    config: str | None = None
    view: str = "messages"
    columns: tuple[str, ...] | None = None
    split_size: int = SPLIT_SIZE
    clock_tolerance: int | None = CLOCK_TOLERANCE
    starting_offset: str | int = "earliest"
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    on_changed_log: str | None = None
    ending_offset: int | None = None
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    min_partitions: int | None = None
    starting_timestamp: int | None = None
    keys: frozenset[str] | None = None
    key_index: str = CHECKED

    def store_config(self) -> StoreConfig:
        """Settings of the broker.conf, RocketMQ's defaults without. Read where it lies: on the driver."""
        return read_broker_conf(Path(self.config)) if self.config else StoreConfig()


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a query, names in any case; UsageError for one that is unknown, missing or says nothing."""
    values: dict[str, str] = {}
    for name, text in given.items():
        known = _ALIASES.get(name.lower(), name.lower())
        if known in _NOT_OURS:
            raise UsageError(f"the data source has no option {name!r}", hint=_NOT_OURS[known])
        if known not in OPTIONS:
            raise UsageError(f"the data source has no option {name!r}", hint=f"its options are {', '.join(OPTIONS)}")
        values[known] = text.strip()
    if not values.get("path"):
        raise UsageError("no store is named", hint='give .option("path", DIR) or .load(DIR)')
    if {"starting_offset", "starting_timestamp"} <= values.keys():
        raise UsageError("there are both starting_offset and starting_timestamp", hint="give one of them")
    view = values.get("view", "messages").lower()
    if view not in TABLES:
        raise UsageError(f"there is no view {view!r}", hint=f"the views are {', '.join(TABLES)}")
    return SourceOptions(
        str(Path(values["path"]).absolute()),
        values.get("config") or None,
        view,
        _columns(view, values.get("columns")),
        _size("split_size", values["split_size"]) if "split_size" in values else SPLIT_SIZE,
        _duration(values["clock_tolerance"]) if "clock_tolerance" in values else CLOCK_TOLERANCE,
        _starting_offset(values.get("starting_offset", "earliest")),
        _size("max_bytes", values["max_bytes"]) or None if "max_bytes" in values else None,
        is_true("fail_on_data_loss", values.get("fail_on_data_loss", "true")),
        _one_of("on_changed_log", values["on_changed_log"], ON_CHANGED_LOG) if "on_changed_log" in values else None,
        _ending_offset(values.get("ending_offset", "latest")),
        *_subscribed(values.get("subscribe"), values.get("subscribe_pattern")),
        _count("min_partitions", values["min_partitions"]) if "min_partitions" in values else None,
        _count("starting_timestamp", values["starting_timestamp"]) if "starting_timestamp" in values else None,
        _keys(values["keys"]) if "keys" in values else None,
        _one_of("key_index", values.get("key_index", CHECKED), KEY_INDEX),
    )


def _columns(view: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    known = TABLES[view].columns
    for name in names:
        if name not in known:
            raise UsageError(f"{view} has no column {name!r}", hint=f"its columns are {', '.join(known)}")
    if len(set(names)) < len(names) or not names:
        raise UsageError("option columns names no column, or one of them twice")
    return names


def _size(option: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18}) ?([kmg]?)(?:i?b)?", text.lower())
    if match is None:
        raise UsageError(f"option {option}={text!r} is no size", hint="write it as 134217728 or 128m")
    return int(match[1]) * _UNITS[match[2]]


def _duration(text: str) -> int | None:
    if text.lower() in ("none", "off"):
        return None
    match = re.fullmatch(r"([0-9]{1,12}) ?(ms|s|m|h|d)", text.lower())
    if match is None:
        raise UsageError(f"option clock_tolerance={text!r} is no time", hint="write it as 90s, 1h or none")
    return int(match[1]) * _TIMES[match[2]]


def _starting_offset(text: str) -> str | int:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"option starting_offset={text!r} is none", hint="write earliest, latest or a physical offset")
    return int(text)


def _ending_offset(text: str) -> int | None:
    if text.lower() == "latest":
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"option ending_offset={text!r} is none", hint="write latest or a physical offset")
    return int(text)


def _subscribed(topics: str | None, pattern: str | None) -> tuple[frozenset[str] | None, str | None]:
    if topics is not None and pattern is not None:
        raise UsageError("there are both subscribe and subscribe_pattern", hint="give one of them")
    names = None if topics is None else frozenset(name.strip() for name in topics.split(",") if name.strip())
    if names is not None and not names:
        raise UsageError("option subscribe names no topic")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"option subscribe_pattern={pattern!r} is no regular expression: {error}") from error
    return names, pattern


def _count(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"option {option}={text!r} is no number of 1 or more")
    return int(text)


def _one_of(option: str, text: str, known: tuple[str, ...]) -> str:
    if text.lower() not in known:
        raise UsageError(f"option {option}={text!r} is none", hint=f"write {', '.join(known)}")
    return text.lower()


def _keys(text: str) -> frozenset[str]:
    keys = frozenset(split_keys(text))
    if not keys:
        raise UsageError("option keys names no key")
    return keys


def is_true(option: str, text: str) -> bool:
    """What an option says that is true or false; UsageError for anything else."""
    if text.lower() not in ("true", "false"):
        raise UsageError(f"option {option}={text!r} is neither true nor false")
    return text.lower() == "true"
