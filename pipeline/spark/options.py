"""The options of the data source: what may be given to `spark.read.format("rocketmq")`, checked and with defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.formats.errors import UsageError
from rmqctl.formats.properties import split_keys
from rmqctl.pipeline.spark_engine import parse_storage_options
from rmqctl.pipeline.splits import SPLIT_SIZE
from rmqctl.pipeline.sql.stores import is_pattern, named_stores, path_list
from rmqctl.pipeline.views import STORE_COLUMNS, TABLES
from rmqctl.pipeline.wanted import QueueBounds, bounds_between, is_by_queue, queue_offsets
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.files.remote import absolute_place
from rmqctl.store.files.remote_file_system import use_storage_options

if TYPE_CHECKING:
    from pyspark.sql import types as spark

OPTIONS: dict[str, str] = {
    "path": "the store's directory, seen under this path by driver and executors (also: store, or load(PATH)); "
    "several: a list in JSON (also: load([A, B])) or a pattern with *, ?, [] and {a,b}",
    "config": "a broker.conf, read by the driver: sizes, paths, delay levels; for several stores a list in JSON",
    "store_columns": "whether rows have the columns store and broker_name, too; true where several stores may be read",
    "view": f"which table: {', '.join(TABLES)}; messages if not given",
    "columns": "only these columns, separated by commas: Spark does not tell a Python source which ones a query needs",
    "push_filters": "let conditions leave out parts of the log; only for a DataFrame that one query uses once, because "
    "Spark reuses the conditions for its next query; false",
    "split_size": "bytes of commitlog a task, as 134217728 or 128m; 0: one task a file",
    "clock_tolerance": "how far the broker's clock was ever set back, as 90s or 1h: a filter by store_timestamp skips "
    "parts of the log that lie further away; none: it skips nothing",
    "starting_offset": "earliest, latest or a physical offset: where to begin; streams: only without a checkpoint; "
    'else queue offsets, as {"TopicA": {"0": 23}}, -2: the earliest, -1: behind the last; not of streams',
    "starting_timestamp": "ms since 1970, instead of starting_offset: from the first message stored then or later on",
    "ending_offset": "latest, a physical offset or queue offsets, before which reading ends; not of streams",
    "ending_timestamp": "ms since 1970, instead of ending_offset: only messages stored before; not of streams",
    "subscribe": "only messages of these topics, separated by commas",
    "subscribe_pattern": "only messages of topics that match this regular expression, as Python has it, as a whole",
    "keys": "only messages with one of these keys, separated by spaces, be it the unique key or one of KEYS; Spark "
    "hands over no array_contains(keys, ...)",
    "key_index": "for keys: checked, what the key index does not know is read; trusted, the index alone says where "
    "messages are, as far as it reaches; off, the log is walked",
    "storage_options": "how servers with stores are reached, as fsspec has it, in JSON by kind of server: "
    '{"s3": {"endpoint_url": "http://..."}}; pyspark_rocketmq.storage_options(spark) has what the session knows',
    "min_partitions": "about this many tasks at least: makes split_size smaller",
    "max_bytes": "streams: bytes of commitlog a micro-batch, as 512m, of all stores together; if not given, all",
    "max_messages": "streams: messages a micro-batch at most, those of other topics counted, too; as max_bytes",
    "new_stores": "streams: where to begin with a store that the checkpoint does not know: earliest (or at "
    "starting_timestamp), or latest; earliest",
    "fail_on_data_loss": "streams: whether messages that were removed before they were read end the query, or a log "
    "that was cut back or replaced, or a store that is not named any more; true",
    "fail_on_damage": "whether damage in the commitlog, or a body that does not unpack, ends the query; false: damage "
    "is skipped, such bodies are as stored (body_error says why), and executors log both",
    "on_changed_log": "streams: what to do where the log was cut back or replaced: fail, or go on from fork (the last "
    "place known to be the same), earliest or latest; fail, and fork with fail_on_data_loss=false",
}
"""Every option with its meaning, for documents and for the error about an unknown one."""

_HOUR = 3_600_000
CLOCK_TOLERANCE = _HOUR
"""In ms. No clock of a server in order is set back further, and what was set back is noticed between two splits."""

# as it is spelled, without its underscores, and as the source `kafka` of Spark calls it
_NAMES = {name.replace("_", ""): name for name in OPTIONS} | {
    "store": "path", "paths": "path", "startingoffsets": "starting_offset", "endingoffsets": "ending_offset",
    "maxoffsetspertrigger": "max_messages", "key": "keys",
}  # fmt: skip
_NOT_OURS = {"assign": 'write .option("subscribe", TOPIC) and where("queue_id = 0")'}
CHECKED, TRUSTED, OFF = KEY_INDEX = ("checked", "trusted", "off")
NEW_STORES = ("earliest", "latest")
ON_CHANGED_LOG = ("fail", "fork", "earliest", "latest")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "h": _HOUR, "d": 24 * _HOUR}


class SourceOptions(NamedTuple):
    """Options with their defaults. `clock_tolerance` in ms, None: nothing is skipped by time; sizes in bytes.

    `path` is one store. Where several may be read, these are the list or the pattern in `several`, and `path` says it
    in one text: `stores` has the options for each of them.
    """

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
    has_store_columns: bool = False
    several: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    broker_name: str | None = None
    push_filters: bool = False
    ending_timestamp: int | None = None
    max_messages: int | None = None
    queue_bounds: tuple[QueueBounds, ...] = ()
    keys: frozenset[str] | None = None
    key_index: str = CHECKED
    storage: str | None = None
    new_stores: str = NEW_STORES[0]
    fail_on_damage: bool = False

    def use_storage(self) -> None:
        """Reach servers from this process as the options say."""
        if self.storage is not None:
            use_storage_options(parse_storage_options(self.storage))

    def store_config(self) -> StoreConfig:
        """Settings of the broker.conf, RocketMQ's defaults without. Read where it is: on the driver."""
        return read_broker_conf(Path(self.config)) if self.config else StoreConfig()

    def stores(self) -> list[SourceOptions]:
        """The options for each store that is named; looks which directories match. Errors as `named_stores`."""
        self.use_storage()
        found = named_stores(self.several or (self.path,), self.configs)
        tasks = None if self.min_partitions is None else -(-self.min_partitions // len(found))
        return [
            self._replace(
                path=one.path,
                config=one.config,
                broker_name=one.broker_name,
                min_partitions=tasks,
                several=(),
                configs=(),
            )
            for one in found
        ]

    @property
    def labels(self) -> dict[str, str | None]:
        """What the columns of STORE_COLUMNS hold in rows of this store."""
        return {"store": self.path, "broker_name": self.broker_name}

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns asked for; those of the view if none are."""
        return self.columns or (*TABLES[self.view].columns, *(STORE_COLUMNS if self.has_store_columns else ()))


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a query, names in any case; UsageError for one that is unknown, missing or says nothing."""
    values: dict[str, str] = {}
    for name, text in given.items():
        known = _NAMES.get(name.lower().replace("_", ""), name.lower())
        if known in _NOT_OURS:
            raise UsageError(f"the data source has no option {name!r}", hint=_NOT_OURS[known])
        if known not in OPTIONS:
            raise UsageError(f"the data source has no option {name!r}", hint=f"its options are {', '.join(OPTIONS)}")
        if values.get(known, text.strip()) != text.strip():
            raise UsageError(f"option {known} is given twice: {name!r} is another name of it")
        values[known] = text.strip()
    if not values.get("path"):
        raise UsageError("no store is named", hint='give .option("path", DIR) or .load(DIR)')
    for edge in ("starting", "ending"):
        if {f"{edge}_offset", f"{edge}_timestamp"} <= values.keys():
            raise UsageError(f"there are both {edge}_offset and {edge}_timestamp", hint="give one of them")
    view = values.get("view", "messages").lower()
    if view not in TABLES:
        raise UsageError(f"there is no view {view!r}", hint=f"the views are {', '.join(TABLES)}")
    several = path_list(values["path"]) or ((values["path"],) if is_pattern(values["path"]) else ())
    configs = path_list(values.get("config", "")) or (values["config"],) if values.get("config") else ()
    if several:
        _require_for_several(values)
    by_queue = [
        queue_offsets(name, values.pop(name)) if is_by_queue(values.get(name, "")) else {}
        for name in ("starting_offset", "ending_offset")
    ]
    if any(by_queue) and "subscribe" not in values and "subscribe_pattern" not in values:
        named = frozenset(topic for topic, _ in {**by_queue[0], **by_queue[1]})
    else:
        named = None
    return SourceOptions(
        values["path"] if several else absolute_place(values["path"]),
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
        *_subscribed(values.get("subscribe"), values.get("subscribe_pattern"), named),
        _count("min_partitions", values.get("min_partitions")),
        _count("starting_timestamp", values.get("starting_timestamp")),
        is_true("store_columns", values.get("store_columns", str(bool(several)))),
        several,
        configs,
        push_filters=is_true("push_filters", values.get("push_filters", "false")),
        ending_timestamp=_count("ending_timestamp", values.get("ending_timestamp")),
        max_messages=_count("max_messages", values.get("max_messages")),
        queue_bounds=bounds_between(*by_queue),
        keys=_keys(values["keys"]) if "keys" in values else None,
        key_index=_one_of("key_index", values.get("key_index", CHECKED), KEY_INDEX),
        storage=values.get("storage_options") or None,
        new_stores=_one_of("new_stores", values.get("new_stores", NEW_STORES[0]), NEW_STORES),
        fail_on_damage=is_true("fail_on_damage", values.get("fail_on_damage", "false")),
    )


def _require_for_several(values: Mapping[str, str]) -> None:
    """UsageError for an offset, which is of one log, where several are read."""
    for name in ("starting_offset", "ending_offset"):
        if values.get(name, "latest").lower() not in ("earliest", "latest"):
            raise UsageError(
                f"option {name}={values[name]!r} is an offset of one store, and several are read",
                hint="write earliest or latest, or begin with starting_timestamp",
            )


def _columns(view: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    known = {**TABLES[view].columns, **STORE_COLUMNS}
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
        raise UsageError(
            f"option starting_offset={text!r} is invalid", hint="use earliest, latest or a physical offset"
        )
    return int(text)


def _ending_offset(text: str) -> int | None:
    if text.lower() == "latest":
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"option ending_offset={text!r} is invalid", hint="use latest or a physical offset")
    return int(text)


def _subscribed(
    topics: str | None, pattern: str | None, named: frozenset[str] | None
) -> tuple[frozenset[str] | None, str | None]:
    """The topics asked for; those that are `named` with their offsets if no option says which."""
    if topics is not None and pattern is not None:
        raise UsageError("there are both subscribe and subscribe_pattern", hint="give one of them")
    names = named if topics is None else frozenset(name.strip() for name in topics.split(",") if name.strip())
    if names is not None and not names:
        raise UsageError("option subscribe names no topic")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"option subscribe_pattern={pattern!r} is no regular expression: {error}") from error
    return names, pattern


def _count(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"option {option}={text!r} is no number of 1 or more")
    return int(text)


def _one_of(option: str, text: str, known: tuple[str, ...]) -> str:
    if text.lower() not in known:
        raise UsageError(f"option {option}={text!r} is invalid", hint=f"use one of: {', '.join(known)}")
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


_TYPES = {
    "string": "StringType",
    "int": "IntegerType",
    "bigint": "LongType",
    "boolean": "BooleanType",
    "timestamp": "TimestampType",
    "binary": "BinaryType",
}


def view_schema(view: str, names: Sequence[str] | None = None) -> spark.StructType:
    """Columns of a view and of its store, None: all of the view; each with its meaning as its comment."""
    from pyspark.sql import types as spark

    kinds: dict[str, spark.DataType] = {kind: getattr(spark, name)() for kind, name in _TYPES.items()}
    kinds["array<string>"] = spark.ArrayType(kinds["string"])
    kinds["map<string,string>"] = spark.MapType(kinds["string"], kinds["string"])
    columns = {**TABLES[view].columns, **STORE_COLUMNS}
    return spark.StructType(
        [
            spark.StructField(name, kinds[columns[name].kind], True, {"comment": columns[name].about})
            for name in (names if names is not None else TABLES[view].columns)
        ]
    )
