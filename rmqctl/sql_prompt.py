"""The prompt of `rmqctl sql`: statements of several lines, a history, and what the views of a store are."""

from __future__ import annotations

import base64
import contextlib
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqctl.formats.errors import RmqctlError, UsageError, counted
from rmqctl.output.outcome import Terminated
from rmqctl.output.output import FIRST_PAGE, Output
from rmqctl.output.table import csv_value, said, table_layout, unspoken, visible, visible_json
from rmqctl.output.terminal import progress
from rmqctl.output.times import format_time
from rmqctl.pipeline.views import TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from rmqctl.store.options import Events

# Rows of an Arrow table as values that JSON, CSV and tables can print, whatever Spark's types were.

_Row = dict[str, Any]

_ROWS = 1000
_MICROS = 1000
_LARGEST_EXACT = 1 << 53


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, each but once: `n`, `n_2`, `n_3`."""
    found: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def printable_rows(table: pa.Table) -> Iterator[_Row]:
    """Rows for tables and CSV: times as ISO 8601 in UTC, bytes as text where they are UTF-8, else as hex with 0x."""
    yield from _rows(table, _text_or_hex)


def json_rows(table: pa.Table) -> Iterator[_Row]:
    """Rows for JSON: the same, but bytes that are no UTF-8 as base64, and the name of such a value with `_base64`."""
    for row in _rows(table, _text_or_base64):
        if any(isinstance(value, _Base64) for value in row.values()):
            yield {f"{name}_base64" if isinstance(value, _Base64) else name: value for name, value in row.items()}
        else:
            yield row


class _Base64(str):
    """Bytes that are no text."""


def _text_or_hex(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _text_or_base64(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _Base64(base64.b64encode(data).decode("ascii"))


def _rows(table: pa.Table, of_bytes: Any) -> Iterator[_Row]:
    names = unique_names(table.schema.names)
    for batch in table.to_batches(max_chunksize=_ROWS):
        columns = [_values(column, of_bytes) for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _values(array: pa.Array, of_bytes: Any) -> list[Any]:
    """The values of an array, None for null."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_timestamp(kind):
        # as numbers: Python's own dates end with the year 9999
        micros = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).to_pylist()
        return [None if value is None else _time(value, kind.tz is not None) for value in micros]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else of_bytes(value) for value in array.to_pylist()]
    if pa.types.is_map(kind):
        keys, items = _values(array.keys, of_bytes), _values(array.items, of_bytes)
        return [None if span is None else _object(keys[span], items[span]) for span in _spans(array)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = _values(array.values, of_bytes)
        return [None if span is None else elements[span] for span in _spans(array)]
    if pa.types.is_struct(kind):
        names = unique_names([field.name for field in kind])
        fields = [_values(array.field(number), of_bytes) for number in range(kind.num_fields)]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return list(map(_plain, array.to_pylist()))


def _spans(array: pa.Array) -> Iterator[slice | None]:
    """Where the elements of each list stand among all elements."""
    offsets = array.offsets.to_pylist()
    for number, valid in enumerate(array.is_valid().to_pylist()):
        yield slice(offsets[number], offsets[number + 1]) if valid else None


def _object(keys: list[Any], values: list[Any]) -> dict[str, Any]:
    return {str(key): value for key, value in zip(keys, values, strict=True)}


def _time(micros: int, is_moment: bool) -> str:
    milliseconds, rest = divmod(micros, _MICROS)
    text = format_time(milliseconds)
    if not text.endswith("Z"):
        return text
    return text[:-1] + (f"{rest:03d}" if rest else "") + ("Z" if is_moment else "")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < _LARGEST_EXACT:
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return str(value)


# Answers to queries, printed as the user chose, or written into a file.

FileFormat = Literal["json", "csv", "parquet", "arrow"]

SUFFIXES: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


def file_format(path: Path, chosen: str | None) -> FileFormat:
    """The format of a file: the one chosen, else what its name says. UsageError if neither says one."""
    if chosen in ("json", "csv", "parquet", "arrow"):
        return chosen  # type: ignore[return-value]  # mypy does not narrow by membership
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"the name {path.name!r} says no format", hint=f"end it with one of {', '.join(SUFFIXES)}")
    return found


def print_answer(output: Output, table: pa.Table) -> None:
    """Print rows. On a terminal that is too narrow for all columns each row is a listing, so that nothing is lost."""
    names = unique_names([visible(name) for name in table.schema.names])
    if not names:
        return
    table = table.rename_columns(names)
    if names == ["plan"] and table.num_rows == 1 and not output.is_json:
        output.text(str(table.column(0)[0].as_py()).rstrip(), keep_newlines=True)
        return
    if output.is_json:
        output.rows(names, json_rows(table))
    elif output.format == "table" and not _fits(names, table):
        for number, row in enumerate(printable_rows(table), start=1):
            output.text(said(f"row {number}"))
            with unspoken():
                output.record(row)
    else:
        # a statement says what it wants to see
        output.digits = output.keeps_all = True
        with unspoken():
            output.rows(names, printable_rows(table))


def _fits(names: list[str], table: pa.Table) -> bool:
    if sys.stdout is None or not sys.stdout.isatty() or not table.num_rows:
        return True
    width = shutil.get_terminal_size().columns
    return (
        table_layout(names, list(islice(printable_rows(table), FIRST_PAGE)), width, digits=True, keeps_all=True).width
        <= width
    )


def write_answer(table: pa.Table, path: Path, kind: FileFormat, overwrite: bool, about: Mapping[str, str]) -> int:
    """Write an answer into a file, which is complete or not there; its length in bytes.

    `about` goes into the metadata of Parquet and Arrow files. RefusedError, WriteFailedError.
    """
    import pyarrow as pa

    from rmqctl.store.files.outputs import new_file

    named = table.rename_columns(unique_names(table.schema.names))
    if not named.schema.names:
        raise UsageError("the statement has no answer that could be written into a file")
    named = named.replace_schema_metadata(dict(about))
    with new_file(path, overwrite) as output:
        if kind == "parquet":
            from pyarrow import parquet

            parquet.write_table(named, pa.PythonFile(output, mode="w"), compression="zstd")
        elif kind == "arrow":
            with pa.ipc.new_file(
                pa.PythonFile(output, mode="w"), named.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
            ) as writer:
                writer.write_table(named)
        else:
            for line in _lines(table, kind):
                output.write(line.encode("utf-8"))
        return output.tell()


def _lines(table: pa.Table, kind: FileFormat) -> Iterator[str]:
    if kind == "json":
        import json

        for row in json_rows(table):
            yield visible_json(json.dumps(row, ensure_ascii=False, allow_nan=False)) + "\n"
        return
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(unique_names(table.schema.names))
    for row in printable_rows(table):
        writer.writerow([csv_value(value) for value in row.values()])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    if text.tell():
        yield text.getvalue()


# Text that people type or pipe, cut into statements of SQL at the semicolons that are not part of them.

# what may hold a semicolon without ending a statement; an unfinished one reaches to the end of the text
_REST = r"""|(?P<comment>--[^\n]*+|/\*.*?(?:\*/|\Z))|(?P<end>;)"""
_SPARK = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)|`[^`]*+(?:`|\Z))""" + _REST, re.DOTALL
)
# where a backslash is a character like others, and texts may stand between dollars
_DUCKDB = re.compile(
    r"""(?P<quoted>'[^']*+(?:'|\Z)|"[^"]*+(?:"|\Z)|(?P<dollars>\$(?:[^\W\d]\w*)?\$).*?(?:(?P=dollars)|\Z))""" + _REST,
    re.DOTALL,
)


class Cut(NamedTuple):
    """Whole statements without their semicolons, and what is left behind the last one. Empty ones are left out."""

    statements: list[str]
    rest: str


def cut_statements(text: str, *, of_spark: bool = False) -> Cut:
    """The statements of `text`, of DuckDB or of Spark. A rest of nothing but space and comments is empty."""
    parts = _SPARK if of_spark else _DUCKDB
    statements: list[str] = []
    begin = 0
    for match in parts.finditer(text):
        if match["end"]:
            _add(statements, text[begin : match.start()], parts)
            begin = match.end()
    rest = text[begin:]
    return Cut(statements, rest if _says_something(rest, parts) else "")


def _add(statements: list[str], text: str, parts: re.Pattern[str]) -> None:
    if _says_something(text, parts):
        statements.append(text.strip())


def _says_something(text: str, parts: re.Pattern[str]) -> bool:
    without = parts.sub(lambda match: "" if match["comment"] else match[0], text)
    return bool(without.strip())


_HELP = (
    "statement;     answer a query; it may have several lines and ends with a semicolon",
    "\\d             the views of the store",
    "\\d VIEW        the columns of a view",
    "\\q             quit; so does Ctrl-D. Ctrl-C forgets the line, or ends the query",
)
_HISTORY = 1000
_WORDS = (
    "select from where group by order having limit join left anti semi on using distinct count sum min max avg "
    "explain describe show case when then else end and or not null is in like between timestamp interval desc".split()
)


def prompt(run: Callable[[str], pa.Table], output: Output, attached: Iterable[str] = (), *, of_spark: bool) -> None:
    """Prompt for statements and answer them until there are no more; errors are printed and do not end it. `attached`:
    names of further stores; `of_spark`: whether Spark answers, whose texts have other quotes."""
    views = {**TABLES, **{f"{name}.{view}": table for name in attached for view, table in TABLES.items()}}
    further = "".join(f", {name}.{next(iter(TABLES))}, …" for name in attached)
    named = f"{', '.join(TABLES)}{further}"
    output.talk(f"Views: {named}. End a query with ';'. \\d lists columns, \\? helps, \\q quits.")
    with _line_editing(views):
        for statement in _statements(output, views, of_spark):
            began = time.monotonic()
            try:
                table = run(statement)
                print_answer(output, table)
            except RmqctlError as error:
                output.talk(f"error: {error}")
                if error.hint:
                    output.talk(f"  {error.hint}")
                continue
            except Terminated:
                raise
            except KeyboardInterrupt:
                output.talk("interrupted")
                continue
            if table.schema.names:
                seconds = f"{time.monotonic() - began:.1f}"
                output.talk(f"({counted(table.num_rows, 'row')}, {seconds} s)")


def _statements(output: Output, views: Mapping[str, Table], of_spark: bool) -> Iterator[str]:
    """What is typed, statement by statement; commands that begin with a backslash are answered here."""
    text = ""
    while True:
        try:
            line = input("   -> " if text.strip() else "sql> ")
        except EOFError:
            output.text("")
            return
        except Terminated:
            raise
        except KeyboardInterrupt:
            text = ""
            output.text("")
            continue
        word = line.strip().rstrip(";").strip()
        if not text.strip() and word.lower() in ("\\q", "quit", "exit"):
            return
        if not text.strip() and word.startswith("\\"):
            _command(word, output, views)
            continue
        found = cut_statements(f"{text}{line}\n", of_spark=of_spark)
        text = found.rest
        yield from found.statements


def _command(word: str, output: Output, views: Mapping[str, Table]) -> None:
    name, _, about = word.partition(" ")
    view = about.strip().lower()
    if name == "\\d" and not view:
        output.rows(("view", "rows"), [{"view": known, "rows": table.about} for known, table in views.items()])
    elif name == "\\d" and view in views:
        columns = views[view].columns
        output.rows(
            ("column", "type", "about"),
            [{"column": column, "type": kind, "about": text} for column, (kind, text) in columns.items()],
        )
    elif name == "\\d":
        output.talk(f"error: there is no view {about.strip()}; the views are {', '.join(views)}")
    elif name == "\\?":
        for line in _HELP:
            output.talk(line)
    else:
        output.talk(f"error: {name} is no command; \\? lists them")


def history_file() -> Path:
    """Where the history is kept: where programs of this user keep their state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "rmqctl" / "sql_history"


@contextlib.contextmanager
def _line_editing(views: Iterable[str]) -> Iterator[None]:
    """Editing of lines with a history and completion, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_HISTORY)
    readline.set_completer(_completer(views))
    readline.set_completer_delims(" \t\n,()=<>;.")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        # no history is no reason to fail
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


def _completer(views: Iterable[str]) -> Callable[[str, int], str | None]:
    words: set[str] = {*views, *_WORDS}
    for table in TABLES.values():
        words |= set(table.columns)

    def complete(text: str, number: int) -> Any:
        found = sorted(word for word in words if word.startswith(text.lower()))
        return found[number] if number < len(found) else None

    return complete


# Who answers statements: DuckDB in this process, or Spark; with progress, and Ctrl-C ends what is asked.

_BODIES = (
    "bodies that do not unpack are read as stored; `select count(*) from messages where body_error is not null` "
    "counts them"
)

Ask = Callable[[str], "pa.Table"]
"""Takes a statement and gives the rows of its answer; raises errors of the family."""


@contextlib.contextmanager
def asking_here(path: str, options: Mapping[str, str], attached: Mapping[str, str], events: Events) -> Iterator[Ask]:
    """Asks the store at `path`, or several by a pattern, in this process. `options` of the data source; `attached`:
    further stores by name; errors as `embedded_sql`. Reported are bodies that a statement read as stored."""
    from rmqctl.pipeline.sql.duckdb import embedded_sql

    with embedded_sql(path, options, attached=attached) as views:

        def ask(statement: str) -> pa.Table:
            with progress("querying", None, "bytes") as bar:
                table = views.answer(statement, bar.advance)
            for error in views.unread_bodies():
                events.damaged(error)
            return table

        yield ask


def asking_spark(
    session: SparkSession, path: str, options: Mapping[str, str], attached: Mapping[str, str], events: Events
) -> Ask:
    """Asks them in a session of Spark. A note says where a statement reads bodies: only the logs of its tasks
    know which do not unpack."""
    from rmqctl.pipeline.spark_engine import run_job
    from rmqctl.pipeline.sql.spark import StoreSql
    from rmqctl.store.files.background import uninterrupted

    with uninterrupted():
        views = StoreSql(session, path, options, attached)

    def ask(statement: str) -> pa.Table:
        with progress("querying", None, "tasks") as bar:
            table = run_job(session, "rmqctl sql", lambda: views.answer(statement), bar.advance)
        if views.read_bodies:
            events.noted(f"note: {_BODIES}")
        return table

    return ask
