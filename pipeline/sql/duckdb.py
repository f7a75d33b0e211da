"""SQL over stores in this process, by DuckDB: the same views, columns and types as on Spark.

DuckDB plans a query and asks the views (`views.py`) for the columns that it needs and the rows that can be in the
answer. It gets at nothing else: no file, no extension, no setting, and of its statements those that only ask. Data
beyond its share of the memory is in a temporary folder.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqctl.formats.errors import CorruptError, EngineError, RmqctlError
from rmqctl.pipeline.spark.options import SourceOptions, parse_options
from rmqctl.pipeline.sql.stores import MAIN, QueryError, options_by_schema
from rmqctl.pipeline.views import MEMORY, SETTINGS, TABLES, require_duckdb
from rmqctl.store.files.outputs import temporary_folder
from rmqctl.store.log.walk import Progress
from rmqctl.store.status import SQL
from rmqctl.store.store_files import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.pipeline.sql.arrow_views import Reading

# Which statements are answered: those that ask, and those that make or drop a view of the session.

_SPACE = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)"
_VIEW = re.compile(
    rf"{_SPACE}*(?:create{_SPACE}+(?:or{_SPACE}+replace{_SPACE}+)?temp(?:orary)?|drop){_SPACE}+view{_SPACE}+"
    rf'(?:if{_SPACE}+(?:not{_SPACE}+)?exists{_SPACE}+)?(?:(?:"[^"]*"|\w+)\.)*"?(?P<name>\w*)',
    re.IGNORECASE | re.DOTALL,
)
_VARIABLE = re.compile(rf"{_SPACE}*(?:re)?set{_SPACE}+variable\b", re.IGNORECASE | re.DOTALL)
_EXPLAIN = re.compile(
    rf"{_SPACE}*explain{_SPACE}+(?:analyze{_SPACE}+)?(?:\([^)]*\){_SPACE}*)?", re.IGNORECASE | re.DOTALL
)
_PIVOT = re.compile(r"\b(?:un)?pivot\b|\bpivot_", re.IGNORECASE)


def require_harmless(connection: Any, statement: str) -> str:
    """The kind of a statement, as DuckDB names it; QueryError for one that is not answered, and for several."""
    found = connection.extract_statements(statement)
    if len(found) != 1:
        raise QueryError("there is no statement" if not found else "these are several statements; separate them by ';'")
    kind = str(found[0].type).rpartition(".")[2]
    if not _is_harmless(connection, kind, statement):
        raise QueryError(
            "only queries are answered here: this statement would change something",
            hint="SELECT, EXPLAIN, DESCRIBE, SHOW, SUMMARIZE, SET VARIABLE and CREATE TEMPORARY VIEW are understood",
        )
    return kind


def _is_harmless(connection: Any, kind: str, statement: str) -> bool:
    if kind == "SELECT":
        return True
    if kind == "EXPLAIN":
        inner = _EXPLAIN.match(statement)
        # what is explained with ANALYZE is carried out
        return inner is not None and require_harmless(connection, statement[inner.end() :]) != "EXPLAIN"
    if kind in ("CREATE", "DROP"):
        view = _VIEW.match(statement)
        return view is not None and view["name"].lower() not in TABLES
    if kind == "SET":
        return _VARIABLE.match(statement) is not None
    # what PIVOT becomes: it looks for its columns first
    return kind == "MULTI" and _PIVOT.search(statement) is not None


# What DuckDB says about a query, as one error of the family: a sentence for people, and the place in the query.

_LONGEST = 600
_KIND = re.compile(r"^([A-Z][\w ]*?) Error: ")
# the line with the mistake, and a mark below it
_PLACE = re.compile(r"^(LINE (\d+): )(.*)\n( *)\^", re.MULTILINE)
_MEMORY = "Out of Memory"
_OTHERS_FAULT = ("IO", "INTERNAL", "FATAL", "HTTP", "Serialization")
_ADVICE = re.compile(r"\. Use TRY\(|\. You might need to|, or SET |\n+Possible solutions|\nSTACK|\n+Stack Trace")
_DIALECT = "SQL is DuckDB's here, and Spark's with --master: docs/sql.md has what differs"


def said_of(error: Exception) -> RmqctlError:
    """Return the error for an exception of DuckDB: QueryError for a mistake in the query, else EngineError."""
    text = str(error)
    match = _KIND.match(text)
    kind = match[1] if match is not None else ""
    if kind == _MEMORY:
        return EngineError(
            "the query needs more memory than it may take",
            hint="let it look at less, or give it to Spark: --master 'local[*]'",
        )
    sentence = _sentence(text[match.end() :] if match is not None else text)
    if not kind or kind in _OTHERS_FAULT:
        return EngineError(
            f"DuckDB could not carry out the query: {sentence}", hint="RMQCTL_DEBUG=1 shows what it said"
        )
    return QueryError(sentence, hint=_hint(kind, sentence))


def _hint(kind: str, sentence: str) -> str | None:
    if sentence.startswith("Table with name"):
        return f"the views of a store are {', '.join(TABLES)}"
    if kind == "Parser" or "Function with name" in sentence:
        return _DIALECT
    return None


def _sentence(text: str) -> str:
    """What it says, on one line, with the place in the query where that is known."""
    place = _PLACE.search(text)
    said = _ADVICE.split(text[: place.start()] if place is not None else text)[0]
    sentence = " ".join(said.split()).rstrip(" .!")[:_LONGEST]
    # the beginning of a long line is left out there
    if place is None or place[3].startswith("..."):
        return sentence
    return f"{sentence} (line {place[2]}, position {len(place[4]) - len(place[1]) + 1})"


_Result = TypeVar("_Result")

LARGEST_ANSWER = 1 << 30
"""Bytes of rows that an answer may have in memory, as Spark's driver takes by default."""

# what Spark calls by other names, where the meaning is the same
_MACROS = (
    "collect_list(x) as list(x) filter (x is not null)",
    "collect_set(x) as list(distinct x) filter (x is not null)",
    "explode(x) as unnest(x)",
    # DuckDB's own second argument says what to do with bytes that are no UTF-8
    "decode(x) as system.main.decode(x), (x, how) as system.main.decode("
    "x, case when lower(how) in ('utf-8', 'utf8') then 'strict' else how end)",
    "unix_millis(x) as epoch_ms(x)",
    "regexp_like(x, pattern) as regexp_matches(x, pattern)",
    "size(x) as len(x)::int",
)
_ROWS = 16384
# seconds: how long is waited at a time, and how long what was interrupted may take to end
_PATIENCE, _FAREWELL = 0.1, 10.0


@contextlib.contextmanager
def embedded_sql(
    path: str | Sequence[str],
    options: Mapping[str, str] | None = None,
    memory: str = MEMORY,
    attached: Mapping[str, str] | None = None,
) -> Iterator[EmbeddedSql]:
    """The views of the store at `path`, to be asked; of several, named one by one or by a pattern, together. `options`:
    of the data source, `config` and `split_size` for example; `memory` as DuckDB writes it; `attached`: further stores
    by name, `messages` of one named b is `b.messages`.

    UnsupportedError without duckdb and pyarrow, UsageError for wrong options, NotAStoreError.
    """
    require_duckdb("SQL in this process", f"{SQL}; --master 'local[*]' asks Spark")
    import duckdb

    from rmqctl.pipeline.sql.arrow_views import Reading

    schemas = {
        name: parse_options(given) for name, given in options_by_schema(path, options or {}, attached or {}).items()
    }
    for parsed in schemas.values():
        for one in parsed.stores():
            StoreFiles(Path(one.path), one.store_config()).close()
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(temporary_folder("rmqctl-sql-"))
        settings: dict[str, Any] = {**SETTINGS, "memory_limit": memory, "temp_directory": str(folder)}
        connection = duckdb.connect(config=settings)
        opened.callback(_close, connection)
        yield EmbeddedSql(connection, schemas, Reading())


def _close(connection: Any) -> None:
    import duckdb

    # refused while a query is under way: one that was interrupted and did not end in time
    with contextlib.suppress(duckdb.Error):
        connection.close()


class EmbeddedSql:
    """The views of stores in a connection of DuckDB, by the name of their schema. Made by `embedded_sql`."""

    def __init__(self, connection: Any, schemas: Mapping[str, SourceOptions], reading: Reading) -> None:
        self._connection = connection
        self._reading = reading
        connection.execute("set TimeZone = 'UTC'")
        for schema, options in schemas.items():
            connection.execute(f'create schema if not exists "{schema}"')
            connection.execute(f"set schema = '{schema}'")
            self._create_views(options)
        connection.execute(f"set schema = '{MAIN}'")
        for macro in _MACROS:
            connection.execute(f"create macro {macro}")
        connection.execute("set lock_configuration = true")

    def _create_views(self, options: SourceOptions) -> None:
        from rmqctl.pipeline.sql.arrow_views import StoreView

        for view in TABLES:
            # the dataset may have its columns in another order
            rows = self._connection.from_arrow(StoreView(view, options, self._reading))
            columns = options._replace(view=view).all_columns
            rows.project(", ".join(f'"{name}"' for name in columns)).create_view(view)

    def answer(self, statement: str, advance: Progress | None = None) -> pa.Table:
        """The rows of the answer to a statement, in its order. `advance` gets bytes of the log that were read.

        QueryError, with one sentence, for one that cannot be answered; EngineError; what reading the store raises.
        Ctrl-C interrupts it.
        """
        self._reading.begin(advance)
        return self._run(lambda: self._answer(statement))

    def unread_bodies(self) -> list[CorruptError]:
        """Return what to report of bodies that the last statement read as stored, because they do not unpack."""
        return self._reading.bodies()

    def _answer(self, statement: str) -> pa.Table:
        import pyarrow as pa

        kind = require_harmless(self._connection, statement)
        relation = self._planned(statement)
        if relation is None or kind in ("CREATE", "DROP", "SET"):
            return pa.table({})
        large = [number for number, name in enumerate(map(str, relation.types)) if name == "HUGEINT"]
        with relation.to_arrow_reader(_ROWS) as reader:
            table = _collected(reader)
        if kind == "EXPLAIN":
            return pa.table({"plan": ["\n".join(table.column(1).to_pylist())]})
        for number in large:
            table = _with_whole_numbers(table, number)
        return table

    def _planned(self, statement: str) -> Any:
        """What is to be carried out; None for a statement that has no answer."""
        import duckdb

        try:
            return self._connection.sql(statement)
        except duckdb.Error:
            # what cannot be planned is refused here, too, and with its place in the statement
            self._connection.execute(statement)
            raise

    def _run(self, work: Callable[[], _Result]) -> _Result:
        """`work` in a thread of its own, so that Ctrl-C is answered; what it raises is raised here."""
        results: list[_Result] = []
        errors: list[BaseException] = []
        # and not the thread itself: interrupted while it waits, `join` takes a thread for ended
        ended = threading.Event()

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                errors.append(error)
            finally:
                ended.set()

        threading.Thread(target=run, daemon=True).start()
        try:
            while not ended.wait(_PATIENCE):
                pass
        except BaseException:
            self._reading.stop()
            self._connection.interrupt()
            ended.wait(_FAREWELL)
            raise
        if errors:
            raise self._said(errors[0])
        return results[0]

    def _said(self, error: BaseException) -> BaseException:
        """The error to raise for what a thread ended with: that of the store before that of DuckDB, which quotes it."""
        import duckdb

        if self._reading.error is not None:
            return self._reading.error
        if not isinstance(error, duckdb.Error):
            return error
        said = said_of(error)
        said.__cause__ = error
        return said


def _collected(reader: pa.RecordBatchReader) -> pa.Table:
    import pyarrow as pa

    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if size > LARGEST_ANSWER:
            raise EngineError(
                f"the answer is larger than {LARGEST_ANSWER} bytes",
                hint="ask for less of it, or write messages with `rmqctl export`",
            )
    return pa.Table.from_batches(batches, reader.schema)


def _with_whole_numbers(table: pa.Table, number: int) -> pa.Table:
    """The table with a column of 128 bits, which every sum is, as bigint, if all of its values can be that."""
    import pyarrow as pa

    column = table.column(number)
    try:
        fitting = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return table
    return table.set_column(number, table.schema.field(number).with_type(pa.int64()), fitting)
