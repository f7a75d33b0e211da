"""SQL by DuckDB over Arrow tables that a task of a job makes: one thread, and a temporary folder for what is large."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import EngineError, UnsupportedError, refuse_exhausted
from rmqctl.store.files.outputs import temporary_folder
from rmqctl.store.scan.schema import require_pyarrow
from rmqctl.store.status import SQL

if TYPE_CHECKING:
    import pyarrow as pa

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
