"""Records as lines of text, sanitised: JSON Lines and CSV."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rmqctl.output.cells import csv_value
from rmqctl.output.sanitise import visible_json

if TYPE_CHECKING:
    from json import JSONEncoder

Row = Mapping[str, Any]


def json_line(row: Row) -> str:
    """The row as a line of JSON. TypeError for a value that has no JSON form."""
    return visible_json(_encoder().encode(row)) + "\n"


@functools.cache
def _encoder() -> JSONEncoder:
    import json

    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_json_value)


def csv_lines(columns: Sequence[str]) -> Callable[[Row | None], str]:
    """Makes a line of CSV of a row, with these columns, and of None the line of names."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")

    def line_of(row: Row | None) -> str:
        text.seek(0)
        text.truncate()
        writer.writerow(columns if row is None else [csv_value(row.get(name)) for name in columns])
        return text.getvalue()

    return line_of


def _json_value(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form of its own: the command must choose one")
