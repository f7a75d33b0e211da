"""The tables that a store is for SQL: their columns, the Spark types of these and what each column holds.

Also SQL over Arrow tables within a task of a job.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import EngineError, UnsupportedError, refuse_exhausted
from rmqctl.store.files.outputs import temporary_folder
from rmqctl.store.scan.schema import COLUMNS as MESSAGE_COLUMNS
from rmqctl.store.scan.schema import require_pyarrow
from rmqctl.store.status import SQL

if TYPE_CHECKING:
    import pyarrow as pa


STRING, INT, BIGINT, BOOLEAN, TIMESTAMP, BINARY = "string", "int", "bigint", "boolean", "timestamp", "binary"


class ViewColumn(NamedTuple):
    """A column: its type as Spark's DDL writes it, and what it holds."""

    kind: str
    about: str


class Table(NamedTuple):
    """A view of a store: what its rows are, and its columns in order."""

    about: str
    columns: dict[str, ViewColumn]


_KINDS = {
    "string": STRING,
    "strings": "array<string>",
    "map": "map<string,string>",
    "bytes": BINARY,
    "body": BINARY,
    "bool": BOOLEAN,
    "int32": INT,
    "int64": BIGINT,
    "time": TIMESTAMP,
    "topic": STRING,
    "name": STRING,
}
_ABOUT_MESSAGES = {
    "msg_id": "offset message id: store host and physical offset",
    "unique_key": "UNIQ_KEY, the id that the producer's client gave it",
    "topic": "topic as stored: SCHEDULE_TOPIC_XXXX for delayed messages",
    "queue_id": "queue of the topic",
    "queue_offset": "offset in the consumequeue",
    "physical_offset": "where its frame begins in the commitlog",
    "size": "bytes of the frame",
    "store_timestamp": "when the broker stored it",
    "born_timestamp": "when the producer sent it, by its own clock",
    "store_host": "address of the broker",
    "born_host": "address of the producer",
    "sys_flag": "system flag as stored",
    "flag": "flag of the application",
    "transaction": "none, prepared, commit or rollback",
    "compression": "how the body is stored compressed; null if it is not",
    "body_crc": "CRC-32 of the body as stored",
    "crc_ok": "true: what fails its checks is no message but a finding",
    "reconsume_times": "how often consumers sent it back",
    "prepared_transaction_offset": "physical offset of the half message that it ends",
    "tags": "TAGS",
    "keys": "KEYS, one by one",
    "properties": "all properties",
    "stored_properties": "their bytes, where writing them again would not give the same",
    "body_size": "bytes of the body, unpacked",
    "body": "the body, unpacked",
    "body_error": "why the body cannot be unpacked: then it is as stored",
    "stored_body": "the bytes of a compressed body as stored",
}


def _columns(**described: tuple[str, str]) -> dict[str, ViewColumn]:
    return {name: ViewColumn(*parts) for name, parts in described.items()}


_MESSAGES = {name: ViewColumn(_KINDS[column.kind], _ABOUT_MESSAGES[name]) for name, column in MESSAGE_COLUMNS.items()}

TABLES: dict[str, Table] = {
    "messages": Table("good messages of the commitlog; damaged spans are passed, `findings` shows them", _MESSAGES),
    "copied_messages": Table(
        "whole messages that the commitlog has no more and a copy has: tiered storage's, or a compaction log's",
        {
            **{name: one for name, one in _MESSAGES.items() if name not in ("msg_id", "physical_offset")},
            **_columns(copy=(STRING, "tiered or compaction")),
        },
    ),
    "consumequeue": Table(
        "units of the consume queues, without empty slots and placeholders",
        _columns(
            topic=(STRING, "topic of the queue"),
            queue_id=(INT, "its id"),
            queue_offset=(BIGINT, "slot of the unit; of its first message in a batch queue"),
            physical_offset=(BIGINT, "where its message begins in the commitlog"),
            size=(INT, "bytes of that message"),
            tags_code=(BIGINT, "hash of its tag, delivery time in ms if it is delayed, or address of an ext unit"),
            batch_size=(INT, "messages of the unit: 1 but in batch queues"),
            store_timestamp=(TIMESTAMP, "in batch queues only"),
            is_expired=(BOOLEAN, "whether its message was removed with old commitlog files"),
            kind=(STRING, "SimpleCQ or BatchCQ"),
        ),
    ),
    "index_entries": Table(
        "entries of the key index, of its files and of `rocksdbstore/`; a file that is cut short gives those it has",
        _columns(
            file=(STRING, "name of the index file, or rocksdbstore"),
            entry=(INT, "number of the entry in its file"),
            key_hash=(INT, "hash of TOPIC#KEY"),
            slot=(INT, "slot that its chain begins at; null in RocksDB"),
            physical_offset=(BIGINT, "where its message begins in the commitlog"),
            store_timestamp=(TIMESTAMP, "when its message was stored; in files to the second"),
            previous_entry=(INT, "the next older entry of the slot; 0 for none, null in RocksDB"),
            topic=(STRING, "in RocksDB only"),
            key=(STRING, "in RocksDB only: a key, a unique key or tags"),
            kind=(STRING, "in RocksDB only: K, U or T"),
        ),
    ),
    "consumer_offsets": Table(
        "how far each consumer group is in each queue (config/consumerOffset.json)",
        _columns(
            consumer_group=(STRING, "the group"),
            topic=(STRING, "the topic"),
            queue_id=(INT, "the queue"),
            consumer_offset=(BIGINT, "queue offset that it consumes next"),
            min_offset=(BIGINT, "first queue offset that is still there; null without such a queue"),
            max_offset=(BIGINT, "queue offset behind the last message; null without such a queue"),
            lag=(BIGINT, "messages from there on, without those in flight by POP; null past the end"),
        ),
    ),
    "topics": Table(
        "topics that are configured (config/topics.json), have queues or have messages in the commitlog",
        _columns(
            topic=(STRING, "the topic"),
            is_configured=(BOOLEAN, "whether topics.json has it; null if that file cannot be read"),
            read_queue_nums=(INT, "queues to read from, as configured"),
            write_queue_nums=(INT, "queues to write to, as configured"),
            perm=(INT, "6: read and write, 4: read, 2: write"),
            message_type=(STRING, "NORMAL, FIFO, DELAY, TRANSACTION, … where it is configured"),
            queues=(INT, "its consume queues; null where they lie in a RocksDB"),
            queue_messages=(BIGINT, "messages that these lead to"),
            queue_bytes=(BIGINT, "bytes of those messages"),
            log_queues=(INT, "queues that its messages in the commitlog belong to"),
            log_messages=(BIGINT, "its good messages in the commitlog"),
            log_bytes=(BIGINT, "bytes of these"),
            first_store_timestamp=(TIMESTAMP, "earliest store time of these"),
            last_store_timestamp=(TIMESTAMP, "latest store time of these"),
        ),
    ),
    "findings": Table(
        "what is wrong with the store, as `rmqctl check` finds it",
        _columns(
            code=(STRING, "kind of finding, RMQ-FAMILY-NNN"),
            severity=(STRING, "error, warning or notice"),
            file=(STRING, "where"),
            physical_offset=(BIGINT, "where in the commitlog"),
            topic=(STRING, "topic it is about"),
            queue_id=(INT, "queue it is about"),
            expected=(STRING, "what should be there"),
            found=(STRING, "what is there"),
            bytes=(BIGINT, "bytes affected"),
            messages=(BIGINT, "messages affected"),
            data_lost=(BOOLEAN, "whether something stored is gone for good; null where that cannot be known"),
            message=(STRING, "what is wrong, in a sentence"),
            fix=(STRING, "the command that fixes it"),
        ),
    ),
}
"""Every view by its name."""

_CHEAP = {"messages": "physical_offset", "copied_messages": "queue_id"}
CHEAPEST = {view: _CHEAP.get(view) or next(iter(table.columns)) for view, table in TABLES.items()}
"""The column of each view that costs least, for who needs none of them but the number of rows."""

STORE_COLUMNS = _columns(
    store=(STRING, "path of the store, as it was named"),
    broker_name=(STRING, "brokerName of its broker.conf; null without one of its own"),
)
"""Columns that rows of any view have behind their own where several stores are read."""


# SQL by DuckDB over Arrow tables that a task of a job makes: one thread, and a temporary folder for what is large.

MEMORY = "50%"
"""The share of this machine's memory that a query may take."""

SETTINGS = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    # as Spark orders, and divides by zero: not at all
    "default_null_order": "nulls_first_on_asc_last_on_desc",
    "ieee_floating_point_ops": "false",
}


def require_duckdb(what: str, hint: str = SQL) -> None:
    """UnsupportedError, which says that `what` needs it, unless there are duckdb, not loaded yet, and pyarrow."""
    if importlib.util.find_spec("duckdb") is None:
        raise UnsupportedError(f"{what} needs duckdb, which is not installed", hint=hint)
    require_pyarrow()


class Tables:
    """Arrow tables by name, to be asked by SQL. Made by `open_tables`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def put(self, **tables: pa.Table) -> None:
        """Have these tables, instead of those of the same names."""
        for name, table in tables.items():
            self._connection.register(name, table)

    def table(self, statement: str, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Return the answer as Arrow; `values` by the names that stand behind `$` in the statement. EngineError."""
        with _understood():
            return self._connection.sql(statement, params=values or None).to_arrow_table()

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """Return the answer as plain rows. EngineError."""
        with _understood():
            found = self._connection.sql(statement)
            return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]

    def tuples(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the answer as plain tuples. EngineError."""
        with _understood():
            found: list[tuple[Any, ...]] = self._connection.sql(statement).fetchall()
            return found

    def make(self, statement: str, values: Mapping[str, Any] | None = None) -> None:
        """Carry out a statement that makes a table. EngineError."""
        with _understood():
            self._connection.execute(statement, values or None)


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Raise what DuckDB raises as EngineError."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        sentence = str(error).partition("\n")[0]
        raise EngineError(f"DuckDB could not count: {sentence}", hint="RMQCTL_DEBUG=1 shows where") from error


@contextlib.contextmanager
def open_tables(*, spills: bool = False) -> Iterator[Tables]:
    """Open a connection without tables. An engine has a process for each core, so it takes one thread.

    `spills`: what does not fit into its share of the memory goes to a temporary folder.
    """
    with contextlib.ExitStack() as opened:
        if spills:
            folder = opened.enter_context(temporary_folder("rmqctl-sql-"))
            connection = _database({"temp_directory": str(folder)})
        else:
            connection = _kept_database().cursor()
        opened.callback(connection.close)
        yield Tables(connection)


@functools.cache
def _kept_database() -> Any:
    """A database for all that does not spill: to start one takes as long as to count 20,000 messages."""
    return _database({"temp_directory": ""})


def _database(further: Mapping[str, str]) -> Any:
    try:
        import duckdb
    except ImportError as error:
        refuse_exhausted(error)
        raise

    return duckdb.connect(config={**SETTINGS, **further, "memory_limit": MEMORY, "threads": 1})


# Tables on their way from one task to another (exchange.py).


def pack(tables: Sequence[pa.Table]) -> bytes:
    """Tables as one, in bytes; none of no rows. Texts, of which there are few, stand there once."""
    import pyarrow as pa

    if not sum(table.num_rows for table in tables):
        return b""
    table = pa.concat_tables(tables)
    for number, one in enumerate(table.schema):
        if pa.types.is_string(one.type):
            table = table.set_column(number, one.name, table.column(number).dictionary_encode().unify_dictionaries())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(packed: Iterable[bytes]) -> pa.Table | None:
    """What `pack` has made of tables alike, as one table; None where all of them had no rows."""
    import pyarrow as pa

    found = [pa.ipc.open_stream(one).read_all() for one in packed if one]
    return pa.concat_tables(found).unify_dictionaries() if found else None
