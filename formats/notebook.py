"""Tables of HTML by which notebooks show stores, reports, findings, messages and results.

Every text is escaped, and control characters are visible: names in a store are hostile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rmqctl.formats.errors import format_time, told

_MOST_ROWS = 50
_LONGEST = 300
_EMPTY: tuple[Any, ...] = (None, "", [], {}, ())


def as_html(value: object) -> str:
    """Return `value` as a table of its fields: the `_repr_html_` of a class.

    Its method `notebook_fields`, where it has one, chooses them.
    """
    return _table(type(value).__name__, _fields(value) or {})


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a record by their names; None for what is not a record."""
    if hasattr(value, "notebook_fields"):
        chosen: dict[str, Any] = value.notebook_fields()
        return chosen
    if isinstance(value, Mapping):
        return {str(name): one for name, one in value.items()}
    names = getattr(value, "__dataclass_fields__", None)
    if names is not None:
        return {name: getattr(value, name) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return None


def _table(caption: str, fields: Mapping[str, Any]) -> str:
    rows = [
        f'<tr><th scope="row" style="text-align: left">{_text(name)}</th>'
        f'<td style="text-align: left">{_cell(name, one)}</td></tr>'
        for name, one in fields.items()
    ]
    named = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f"<table>{named}<tbody>{''.join(rows)}</tbody></table>"


def _cell(name: str, value: Any) -> str:
    if any(value is empty or value == empty for empty in _EMPTY):
        return ""
    if isinstance(value, bool | str):
        return _text(value)
    if isinstance(value, int) and name.endswith("_timestamp"):
        return _text(format_time(value) if value > 0 else value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value[: _LONGEST + 1]).decode("utf-8", "backslashreplace"))
    fields = _fields(value)
    if fields is not None:
        return _table("", fields)
    if isinstance(value, Sequence | set | frozenset):
        return _list(list(value))
    return _text(value)


def _list(values: Sequence[Any]) -> str:
    """Return a table with a column for each field that any of the records has a value of; else a line for each."""
    shown = values[:_MOST_ROWS]
    records = [_fields(value) for value in shown]
    more = f"<p>and {len(values) - len(shown):,} more</p>" if len(values) > len(shown) else ""
    if not all(records):
        return "<br>".join(_text(value) for value in shown) + more
    rows = [record for record in records if record]
    names = dict.fromkeys(name for row in rows for name, one in row.items() if one not in _EMPTY)
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
    body = "".join(_row(_cell(name, row.get(name)) for name in names) for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _text(value: object) -> str:
    import html  # not for those who only read a message

    text = told(str(value)) if isinstance(value, PurePath) else str(value)
    cut = text[:_LONGEST] + ("…" if len(text) > _LONGEST else "")
    return html.escape("".join(char if char.isprintable() else repr(char)[1:-1] for char in cut))
