"""A scrolling table that asks for the rows on the screen and for no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rmqctl.formats.errors import RmqctlError
from rmqctl.output.table import cut, padded, said, said_title, visible

_GAP = "  "
_LEAST_WIDTH = 8


class RowColumn(NamedTuple):
    """A column of `width` cells; 0 takes the rest of the line."""

    title: str
    width: int = 0
    right: bool = False


class ScreenRow(NamedTuple):
    """The texts of a row, as stored: the table escapes them. `is_bad`: damage, shown in red."""

    cells: tuple[str, ...]
    is_bad: bool = False


class RowSource(Protocol):
    """Rows by number. `read` gives those of [begin, begin + count), and may raise RmqctlError."""

    columns: Sequence[RowColumn]

    @property
    def count(self) -> int:
        """Number of rows."""

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Rows of [begin, begin + count)."""


class TextRows:
    """Lines of text as rows, with one column without a title."""

    columns: Sequence[RowColumn] = (RowColumn(""),)

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    @property
    def count(self) -> int:
        """Number of lines."""
        return len(self.lines)

    def read(self, begin: int, count: int) -> list[ScreenRow]:
        """Return lines as rows."""
        return [ScreenRow((line,)) for line in self.lines[begin : begin + count]]


class RowView(ScrollView, can_focus=True):
    """A table of any number of rows with a cursor. Reads a screen of rows at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up", "move(-1)"),
        ("down", "move(1)"),
        ("pageup", "page(-1)"),
        ("pagedown", "page(1)"),
        ("home", "end(False)"),
        ("end", "end(True)"),
        ("enter", "open"),
    ]
    DEFAULT_CSS = "RowView { height: 1fr; background: $surface; scrollbar-size-horizontal: 0; }"

    class Opened(Message):
        """A row was chosen by Enter or a second click."""

        def __init__(self, number: int) -> None:
            self.number = number
            super().__init__()

    def __init__(self, source: RowSource) -> None:
        super().__init__()
        self.source = source
        self.cursor = 0
        self._rows: dict[int, ScreenRow] = {}

    def on_mount(self) -> None:
        """Measure the rows."""
        self.refresh_rows()

    def show(self, source: RowSource) -> None:
        """Replace the rows."""
        self.source, self.cursor = source, 0
        self.refresh_rows()
        self._scroll(0)

    def refresh_rows(self) -> None:
        """Read the rows on the screen again."""
        self._rows.clear()
        self.cursor = max(0, min(self.cursor, self.source.count - 1))
        self.virtual_size = Size(self.size.width, self.source.count + self._head)
        self.refresh()

    @property
    def _head(self) -> int:
        return int(any(column.title for column in self.source.columns))

    @property
    def _page(self) -> int:
        return max(1, self.size.height - self._head)

    def on_resize(self) -> None:
        """Keep the width of the rows that of the screen."""
        self.virtual_size = Size(self.size.width, self.source.count + self._head)

    def row(self, number: int) -> ScreenRow:
        """Return a row, read with those after it that fit on the screen."""
        if number not in self._rows:
            top = int(self.scroll_offset.y)
            begin = top if top <= number < top + self._page else number
            if len(self._rows) > 16 * self._page:
                self._rows.clear()
            try:
                read = self.source.read(begin, min(self._page, self.source.count - begin))
            except RmqctlError as error:
                read = [ScreenRow((said(str(error)),), is_bad=True)]
            for place, row in enumerate(read, begin):
                self._rows[place] = row
        return self._rows.get(number, ScreenRow(()))

    def render_line(self, y: int) -> Strip:
        """Return line `y` of the screen: the titles, then rows from the scroll position on."""
        width, base = self.size.width, self.rich_style
        if y < self._head:
            return self._strip(
                [said_title(column.title) for column in self.source.columns], base + Style(bold=True), width
            )
        number = y - self._head + int(self.scroll_offset.y)
        if number >= self.source.count:
            return Strip([Segment(" " * width, base)])
        row = self.row(number)
        style = base + Style(color="red") if row.is_bad else base
        if number == self.cursor:
            style += Style(reverse=True)
        return self._strip(row.cells, style, width)

    def _strip(self, cells: Sequence[str], style: Style, width: int) -> Strip:
        if len(cells) == 1 and len(self.source.columns) > 1:  # a sentence in place of a row
            widths, columns = [width], [RowColumn("")]
        else:
            columns = list(self.source.columns)
            fixed = sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)
            widths = [column.width or max(_LEAST_WIDTH, width - fixed) for column in columns]
        parts = []
        for text, size, column in zip(cells, widths, columns, strict=False):
            # a text of megabytes is cut before it is escaped
            parts.append(padded(cut(visible(text[: 4 * size + 4]), size), size, right=column.right))
        return Strip([Segment(padded(cut(_GAP.join(parts), width), width, right=False), style)])

    def move_to(self, number: int) -> None:
        """Move the cursor to a row, and scroll it into view."""
        self.cursor = max(0, min(number, self.source.count - 1))
        top = int(self.scroll_offset.y)
        if self.cursor < top:
            self._scroll(self.cursor)
        elif self.cursor >= top + self._page:
            self._scroll(self.cursor - self._page + 1)
        self.refresh()

    def _scroll(self, top: int) -> None:
        self.scroll_y = self.scroll_target_y = top

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by a screen."""
        self.move_to(self.cursor + by * self._page)

    def action_end(self, is_last: bool) -> None:
        """Move the cursor to the first or the last row."""
        self.move_to(self.source.count - 1 if is_last else 0)

    def action_open(self) -> None:
        """Report the row under the cursor as chosen."""
        if self.source.count:
            self.post_message(self.Opened(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the row that was clicked; open it if it was there."""
        line = event.y - self._head
        number = line + int(self.scroll_offset.y)
        if line < 0 or number >= self.source.count:
            return
        if number == self.cursor:
            self.action_open()
        else:
            self.move_to(number)
