"""The layout of a table: which columns, how wide, what is cut, so that it fits a terminal; piped, nothing is cut."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rmqctl.formats.errors import format_time, lasting_in_short, told

# Other languages than English: what our own text becomes where it is printed. JSON and CSV never pass here.


class Speech(Protocol):
    """Another language (rmqctl.language.speech)."""

    @property
    def tag(self) -> str:
        """Its name for browsers, such as zh-CN."""

    def line(self, text: str) -> str:
        """A line for people."""

    def title(self, text: str, *, of_queues: bool = False) -> str:
        """The name of a column, or of a line of a summary; `of_queues` in a table whose offsets are those of queues."""

    def finding(self, text: str) -> str:
        """A text of the catalogue of findings."""

    def value(self, text: str, name: str) -> str:
        """A text in a table or a summary, below this name: one of our own, or one of a store, which stays."""

    def wrapped(self, text: str, width: int, indent: str, first: str = "") -> list[str]:
        """The lines of a paragraph; `first` comes before the first one, `indent` before the others."""


_speech: Speech | None = None


def speak_by(speech: Speech | None) -> None:
    """Print in another language from now on, or with None in English."""
    globals()["_speech"] = speech


def speech() -> Speech | None:
    """Return the other language; None for English."""
    return _speech


@contextlib.contextmanager
def unspoken() -> Iterator[None]:
    """Print as it is what the user's own statement answers: names and texts that look like ours are data."""
    before = _speech
    speak_by(None)
    try:
        yield
    finally:
        speak_by(before)


def said(text: str) -> str:
    """A line of our own in the language that is spoken."""
    return text if _speech is None else _speech.line(text)


def said_finding(text: str) -> str:
    """A text of the catalogue of findings in the language that is spoken."""
    return text if _speech is None else _speech.finding(text)


def said_title(text: str, *, of_queues: bool = False) -> str:
    """The name of a column, or of a line of a summary, in the language that is spoken."""
    return text if _speech is None else _speech.title(text, of_queues=of_queues)


# Law 7: text from a store, made visible before it meets a terminal.
#
# Topics, keys, tags, bodies and error texts may hold anything: escape sequences that repaint the screen, bidi
# controls that turn a line around, characters of no width that hide a difference. Every such code point becomes its
# escape (`\x1b`, `\u202e`, `\U000e0041`); everything that shows as itself stays.

# Unicode categories Cc, Cf, Cs, Co, Zl and Zp, the noncharacters, and what Unicode calls default-ignorable (Hangul
# fillers, variation selectors, tags): all that has no glyph of its own or acts on its neighbours. A test compares
# this with the interpreter's own Unicode tables.
UNSAFE_RANGES = (
    (0x0000, 0x001F),
    (0x007F, 0x009F),
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0x10000, 0xE0000, 0x10000)),
    (0xE0000, 0xE0FFF),
    (0xEFFFE, 0x10FFFF),
)


def _character_class(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


@functools.cache
def _unsafe(keep_newlines: bool = False) -> re.Pattern[str]:
    """One unsafe character. Compiled when the first text needs it: plain ASCII never does."""
    spared = "(?!\n)" if keep_newlines else ""
    return re.compile(f"{spared}[{_character_class(UNSAFE_RANGES)}]")


_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_for_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def visible(text: str, *, keep_newlines: bool = False) -> str:
    """`text` with every code point that a terminal would obey or hide written as an escape.

    Newline and tab are escaped too; `keep_newlines` keeps the newlines (texts of several lines that are ours). A remote
    store is named by its address.
    """
    text = told(text)
    if text.isascii() and text.isprintable():
        return text
    return _unsafe(keep_newlines).sub(_escape, text)


def visible_json(document: str) -> str:
    r"""A JSON document (as json.dumps writes it, on one line) with the same code points as `\uXXXX` inside its strings.

    It means exactly what it meant before: outside of strings none of them occurs.
    """
    document = told(document)
    if document.isascii() and document.isprintable():
        return document
    return _unsafe().sub(_escape_for_json, document)


# Values as people read them in a table cell or a listing: sanitised, on one line, with a known width on the screen.

ELLIPSIS = "…"
NOTHING = "-"
SIZES = ("bytes", "size", "bytes_left")
"""What the names of numbers of bytes end with."""
SPAN = "_ms"
"""What the name of a length of time ends with, in ms."""
SPANS = (SPAN, "_delay")
GAP = "  "
# white space and NULs, which stand for nothing to see: from so many on only their number is told
_LONG_BLANK = 16
_BLANKS = rf"[\s\0]{{{_LONG_BLANK},}}"


def width_of(text: str) -> int:
    """Columns that `text` takes on a terminal (wide characters take two, combining ones none)."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """`text` if it fits into `width` columns, else its start and an ellipsis in exactly that many."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + ELLIPSIS


def _and_more(rest: int) -> str:
    return ELLIPSIS + said(f" and {rest} more characters: --json has all")


def shortened(text: str, longest: int) -> str:
    """`text` if it has at most `longest` characters, else its start and how many more there are."""
    rest = len(text) - longest
    return text if rest <= 0 else text[:longest] + _and_more(rest)


def shown(text: str, longest: int) -> str:
    """`text` sanitised, in about `longest` characters: of long blanks only their number, and of the rest too."""
    parts: list[str] = []
    position = 0
    long_blank = re.compile(_BLANKS)
    while position < len(text) and longest > 0:
        blanks = long_blank.search(text, position, position + longest + _LONG_BLANK)
        piece = fitting = text[position : blanks.start() if blanks else position + longest]
        while len(visible(fitting)) > longest:
            fitting = fitting[: len(fitting) * longest // len(visible(fitting))]
        parts.append(visible(fitting))
        longest -= len(parts[-1])
        position += len(fitting)
        if len(fitting) < len(piece):
            break
        if blanks is not None:
            end = long_blank.match(text, position)
            count = 0 if end is None else len(end[0])
            parts.append(f"{ELLIPSIS}{count} blanks{ELLIPSIS}")
            longest -= len(parts[-1])
            position += count
    rest = len(text) - position
    return "".join(parts) + (_and_more(rest) if rest else "")


def cut_start(text: str, width: int) -> str:
    """`text` if it fits into `width` columns, else an ellipsis and its end: what tells one path from another."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[1:]
    return ELLIPSIS + text if width > 0 else ""


def padded(text: str, width: int, *, right: bool) -> str:
    """`text` filled with spaces to `width` columns, on its left if `right` (aligned), never cut."""
    if text.isascii():
        return text.rjust(width) if right else text.ljust(width)
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def cell(value: Any, name: str = "", *, digits: bool = False) -> str:
    """One value as sanitised text on one line; `name` is its column: `*_timestamp` are shown as time, and numbers of
    bytes and lengths of time as people say them, unless `digits` are wanted."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, str):  # first what is asked most often
        return visible(value if _speech is None else _speech.value(value, name))
    if isinstance(value, bool):
        return said_title("yes" if value else "no")
    if isinstance(value, int):
        kind = _kind_of(name)
        if kind == "time" and value > 0:
            return format_time(value)
        if digits or kind not in ("size", "span"):
            return str(value)
        return human_size(value) if kind == "size" else lasting_in_short(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return (
            " ".join(f"{visible(str(key))}={cell(item, str(key), digits=True)}" for key, item in value.items())
            or NOTHING
        )
    if isinstance(value, Sequence):
        return ", ".join(cell(item, name if isinstance(item, str) else "") for item in value) or NOTHING
    return visible(str(value))


@functools.lru_cache(maxsize=256)
def _kind_of(name: str) -> str:
    """What the numbers of a column are."""
    if name.endswith(SIZES):
        return "size"
    return "span" if name.endswith(SPANS) else "time" if name.endswith("_timestamp") else ""


def listed(value: Any, name: str) -> str:
    """A value in a key/value listing: as in a table, with the number kept beside a time, and large sizes said twice."""
    if isinstance(value, int) and not isinstance(value, bool):
        kind = _kind_of(name)
        if kind == "time" and value > 0:
            return f"{format_time(value)} ({value})"
        if kind == "span":
            return f"{value} ms" if abs(value) < 1000 else f"{value} ms ({lasting_in_short(value)})"
        if kind == "size" and abs(value) >= 1024:
            return f"{value} ({human_size(value)})"
    return cell(value, name, digits=True)


def human_size(count: int) -> str:
    """A number of bytes in the largest binary unit that keeps it at or above one: 1536 is `1.5 KiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def csv_value(value: Any) -> Any:
    """A value for a CSV field: numbers and texts as they are, lists and objects as JSON, bytes as hex."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return visible(value, keep_newlines=True)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping | Sequence):
        import json

        return visible(json.dumps(value, ensure_ascii=False, default=str))
    return visible(str(value))


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
    of_queues = has_queue_offsets(names)
    columns = [_column(name, page, digits, as_given=keeps_all, of_queues=of_queues) for name in names]
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


def has_queue_offsets(names: Iterable[str]) -> bool:
    """Return whether the offsets of a table with these columns are those of queues, not of the log."""
    return bool({"queue_id", "lag"} & {*names}) or {"offset", "max_offset"} <= {*names}


def leaving_order(names: Sequence[str], droppable: Sequence[str]) -> list[str]:
    """The columns that a table can do without, the least useful first: `droppable`, then the others from the right.
    What a row is and what it is about stays, and so does the first column."""
    rest = [name for name in reversed(names[1:]) if name not in IDENTITY and name not in CONTENT]
    return list(dict.fromkeys([*(name for name in droppable if name in names), *rest]))


def _may_cut(column: Column) -> bool:
    """Numbers, times and words for a state are no use in part, and an id or address is there to be copied."""
    return not column.right and not column.name.endswith("_timestamp") and column.name not in _WHOLE


def title_of(name: str, *, digits: bool = False) -> str:
    """Return the heading of a column."""
    title = name.removesuffix("_timestamp")
    if not digits and title.endswith(SPAN):
        # beside the number of messages that a group is behind
        title = "lag time" if title == "lag_ms" else title.removesuffix(SPAN)
    return title.replace("_", " ")


def _column(
    name: str, page: Sequence[Mapping[str, Any]], digits: bool, *, as_given: bool = False, of_queues: bool = False
) -> Column:
    title = name if as_given else said_title(title_of(name, digits=digits), of_queues=of_queues)
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
