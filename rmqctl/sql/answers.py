"""Answers to queries, printed as the user chose, or written into a file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rmqctl.formats.errors import UsageError
from rmqctl.output.output import FIRST_PAGE, Output
from rmqctl.output.sanitise import visible
from rmqctl.output.table import table_layout
from rmqctl.sql.values import json_rows, printable_rows, unique_names

if TYPE_CHECKING:
    import pyarrow as pa

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
            output.text(f"row {number}")
            output.record(row)
    else:
        # a statement says what it wants to see
        output.digits = output.keeps_all = True
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

    from rmqctl.store.outputs.outputs import new_file

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

        from rmqctl.output.sanitise import visible_json

        for row in json_rows(table):
            yield visible_json(json.dumps(row, ensure_ascii=False, allow_nan=False)) + "\n"
        return
    import csv
    import io

    from rmqctl.output.cells import csv_value

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
