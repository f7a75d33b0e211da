"""The layout of a table: which columns, how wide, what is cut, so that it fits a terminal; piped, nothing is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rmqctl.output.cells import GAP, SPAN, cell, cut, cut_start, padded, width_of

# a text is not cut below this
NARROWEST = 8
# nor what tells one row from another below this, while another column can go
NARROWEST_IDENTITY = 20
# nor a path below this: the ends of paths are much alike
NARROWEST_PATH = 46
# A piped cell that is wider than this is printed whole, but the other rows are not padded to it.
WIDEST_PIPED = 64
_PATHS = ("path", "file")
_WHOLE = ("id", "state", "effect", "address")
IDENTITY = frozenset(
    "topic queue_id queue_offset offset physical_offset group id code path file kind part level store".split()
)
"""Columns that tell one row from another."""
CONTENT = frozenset(("body", "message", "state", "severity", "operation", "decision"))
"""Columns that rows are asked for."""


class Column(NamedTuple):
    """One column. `may_cut`: only texts give way; a number or a time that is cut is a wrong one."""

    name: str
    title: str
    width: int
    right: bool
    may_cut: bool
    short_time: bool
    digits: bool

    def text(self, row: Mapping[str, Any]) -> str:
        """The cell of `row`, cut to the column's width if it may be."""
        found = cell(row.get(self.name), self.name, digits=self.digits)
        if self.short_time and found.endswith("Z"):
            # 2026-11-20T23:29:34.393Z as 2026-11-20 23:29:34
            found = found[:19].replace("T", " ")
        if not self.may_cut:
            return found
        return cut_start(found, self.width) if self.name in _PATHS else cut(found, self.width)


class TableLayout:
    """Columns that were settled on the first page of rows."""

    def __init__(self, columns: list[Column], left_out: Sequence[str] = ()) -> None:
        self.columns = columns
        self.left_out = left_out
        """Names of columns for which the terminal is too narrow."""

    @property
    def width(self) -> int:
        """Columns that a whole line takes."""
        return sum(column.width for column in self.columns) + len(GAP) * (len(self.columns) - 1)

    def header(self) -> list[str]:
        """The lines of the header: titles are broken at spaces where the column is narrower."""
        broken = [_broken(column.title, column.width) for column in self.columns]
        height = max(map(len, broken))
        lines = [[""] * (height - len(title)) + title for title in broken]
        return [self._joined([title[number] for title in lines]) for number in range(height)]

    def line(self, row: Mapping[str, Any]) -> str:
        """One row."""
        return self._joined([column.text(row) for column in self.columns])

    def _joined(self, texts: Sequence[str]) -> str:
        parts = [
            padded(text, column.width, right=column.right) for text, column in zip(texts, self.columns, strict=True)
        ]
        return GAP.join(parts).rstrip(" ")


def table_layout(
    names: Sequence[str],
    page: Sequence[Mapping[str, Any]],
    available: int | None,
    droppable: Sequence[str] = (),
    *,
    digits: bool = False,
    keeps_all: bool = False,
) -> TableLayout:
    """Columns for a terminal of `available` columns, or for a pipe if None.

    What is done until it fits, in this order: titles on several lines, times to the second, texts cut, but not what
    tells one row from another, columns left out by their rank (`leaving_order`), and such texts cut as well. Sizes are
    `digits`, or as people say them. `keeps_all`: no column is left out, and titles are the names as given.
    """
    columns = [_column(name, page, digits, as_given=keeps_all) for name in names]
    if available is None:
        return TableLayout([column._replace(width=min(column.width, WIDEST_PIPED)) for column in columns])
    shown = [column._replace(may_cut=_may_cut(column)) for column in columns]
    leaving = [] if keeps_all else leaving_order(names, droppable)
    left_out: list[str] = []
    while True:
        layout = _fitted(shown, page, available, _narrowest)
        if layout.width > available and not leaving:
            layout = _fitted(shown, page, available, _narrowest_of_all)
        if layout.width <= available or not leaving:
            layout.left_out = left_out
            return layout
        name = leaving.pop(0)
        left_out.append(name)
        shown = [column for column in shown if column.name != name]


def leaving_order(names: Sequence[str], droppable: Sequence[str]) -> list[str]:
    """The columns that a table can do without, the least useful first: `droppable`, then the others from the right.
    What a row is and what it is about stays, and so does the first column."""
    rest = [name for name in reversed(names[1:]) if name not in IDENTITY and name not in CONTENT]
    return list(dict.fromkeys([*(name for name in droppable if name in names), *rest]))


def _may_cut(column: Column) -> bool:
    """Numbers, times and words for a state are no use in part, and an id or address is there to be copied."""
    return not column.right and not column.name.endswith("_timestamp") and column.name not in _WHOLE


def _column(name: str, page: Sequence[Mapping[str, Any]], digits: bool, *, as_given: bool = False) -> Column:
    title = name if as_given else name.removesuffix("_timestamp")
    if not digits and title.endswith(SPAN):
        # beside the number of messages that a group is behind
        title = "lag time" if title == "lag_ms" else title.removesuffix(SPAN)
    title = title if as_given else title.replace("_", " ")
    width = max(width_of(title), *(width_of(cell(row.get(name), name, digits=digits)) for row in page))
    return Column(name, title, width, _is_numeric(name, page), False, False, digits)


def _fitted(
    columns: Sequence[Column], page: Sequence[Mapping[str, Any]], available: int, narrowest: Callable[[Column], int]
) -> TableLayout:
    layout = TableLayout(
        [
            column._replace(width=min(column.width, max(available, narrowest(column)))) if column.may_cut else column
            for column in columns
        ]
    )
    if layout.width <= available:
        return layout
    layout = TableLayout([_narrow_title(column, page) for column in layout.columns])
    if layout.width <= available:
        return layout
    layout = TableLayout(
        [
            _narrow_title(column._replace(short_time=True), page) if column.name.endswith("_timestamp") else column
            for column in layout.columns
        ]
    )
    while layout.width > available:
        candidates = [
            index for index, column in enumerate(layout.columns) if column.may_cut and column.width > narrowest(column)
        ]
        if not candidates:
            break
        widest = max(candidates, key=lambda index: layout.columns[index].width)
        layout.columns[widest] = layout.columns[widest]._replace(width=layout.columns[widest].width - 1)
    return layout


def _narrowest(column: Column) -> int:
    is_text_of_identity = column.name in IDENTITY and column.name not in _PATHS
    return NARROWEST_IDENTITY if is_text_of_identity else _narrowest_of_all(column)


def _narrowest_of_all(column: Column) -> int:
    return NARROWEST_PATH if column.name in _PATHS else NARROWEST


def _narrow_title(column: Column, page: Sequence[Mapping[str, Any]]) -> Column:
    """As narrow as the cells and the longest word of the title allow."""
    words = max(map(width_of, column.title.split()), default=0)
    cells = max(width_of(column.text(row)) for row in page)
    return column._replace(width=max(words, cells))


def _broken(title: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in title.split() or [""]:
        if lines and width_of(lines[-1]) + 1 + width_of(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, width))
    return lines


def _is_numeric(name: str, page: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column holds numbers and nothing but them: a text among them may have any length."""
    values = [row.get(name) for row in page]
    return any(_is_number(value, name) for value in values) and all(
        value is None or _is_number(value, name) for value in values
    )


def _is_number(value: Any, name: str) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not name.endswith("_timestamp")
