"""The one place that prints: data on stdout as a table, JSON Lines or CSV, talk on stderr, all of it sanitised.

A list is streamed: JSON Lines and CSV row by row, a table after its first page, which settles the widths of its
columns. On a terminal texts are cut to fit the screen; piped it is aligned plain text, nothing cut, no colour.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path, PurePath
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from rmqctl.formats.errors import UsageError, WriteFailedError, counted
from rmqctl.output.table import (
    GAP,
    TableLayout,
    cell,
    csv_value,
    listed,
    padded,
    said,
    said_title,
    shortened,
    shown,
    speech,
    table_layout,
    visible,
    visible_json,
    width_of,
)
from rmqctl.output.terminal import aside, running

if TYPE_CHECKING:
    from json import JSONEncoder

    from rmqctl.output.plot import Plot
    from rmqctl.store.files.layout import StoreLayout

# Keeps what a command has done by now, so that an output that cannot be written does not hide it.


class OutputLostError(WriteFailedError):
    """What was asked for is done, but its result could not be written to standard output."""

    code = "RMQ-E-051"


class _Done(NamedTuple):
    sentence: str
    details: dict[str, Any]


_done: list[_Done] = []


def note_done(sentence: str, **details: Any) -> None:
    """Record a finished change before its result is printed. `sentence` names it; `details` are for --json."""
    _done.append(_Done(sentence, details))


class ChangeReport(Protocol):
    """The part that reports of journalled changes have in common."""

    dry_run: bool
    journal: str | None
    operations: list[dict[str, Any]]


def note_change(report: ChangeReport, sentence: str) -> None:
    """Record a journalled change, unless nothing was changed."""
    if not report.dry_run and (report.journal or report.operations):
        note_done(sentence, journal=report.journal)


def forget_done() -> None:
    """Begin a command, which has done nothing yet."""
    _done.clear()


def output_lost(why: str) -> OutputLostError | None:
    """Return the error of a finished change whose result could not be written, None where nothing was done."""
    if not _done:
        return None
    error = OutputLostError(
        f"{'; '.join(one.sentence for one in _done)}, but the result could not be written to standard output: {why}",
        hint="do not run the command again",
    )
    for one in _done:
        error.details |= one.details
    return error


# Records as lines of text, sanitised: JSON Lines and CSV.

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


# Colours: what each means, in one place. Only a terminal gets them, and not where NO_COLOR or TERM=dumb say so.

GOOD, DOUBTFUL, BAD = "green", "yellow", "bold red"
HEADING = "bold"
OF_SEVERITY = {"error": BAD, "warning": DOUBTFUL, "notice": "cyan"}
"""Severity of a finding -> its style."""


OutputFormat = Literal["table", "json", "csv"]

FORMATS: tuple[OutputFormat, ...] = ("table", "json", "csv")
# On a terminal a value of a listing, or a line, that is longer than this is cut: nobody reads page after page of it.
LONGEST_SHOWN = 800
# Rows that settle the widths of a table's columns before the first line is printed.
FIRST_PAGE = 200


class Output:
    """Prints the results of one command in the format that the user chose."""

    def __init__(
        self, json: bool = False, format: OutputFormat = "table", *, digits: bool = False, stream: IO[str] | None = None
    ) -> None:
        """`json` wins over `format`; `digits`: sizes in tables as numbers of bytes; `stream` replaces stdout.

        Raises: WriteFailedError where stdout is closed, before the command does anything."""
        if stream is None and sys.stdout is None:
            raise _closed_error()
        self.digits = digits
        self.keeps_all = False
        """Whether a table has all columns even where a terminal is too narrow for them."""
        self._plot: Plot | None = None
        self._left_out: dict[str, None] = {}
        self.format: OutputFormat = "json" if json else format
        self._stream = stream
        self._asked: IO[str] | None = None
        self._is_terminal = False
        if stream is None and self.format != "table" and hasattr(sys.stdout, "reconfigure"):
            # JSON and CSV are UTF-8 whatever the locale says
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        if stream is None:
            refuse_place()

    @property
    def is_json(self) -> bool:
        """Whether data goes out as JSON, so that a command can leave out what only people need."""
        return self.format == "json"

    def rows(
        self,
        columns: Sequence[str],
        rows: Iterable[Row],
        *,
        all_columns: Sequence[str] | None = None,
        droppable: Sequence[str] = (),
    ) -> int:
        """Print a list, and say how many rows it had.

        `columns` are the keys that a table shows, in order. JSON Lines hold every key of every row; CSV has
        `all_columns`, else `columns`. A key that a row lacks is an empty cell. Nothing is printed for an empty list
        but CSV's header. On a narrow terminal the `droppable` columns are left out, the first of them first.
        """
        if self.format == "json":
            return self._json_lines(rows)
        if self.format == "csv":
            return self._csv(all_columns or columns, rows)
        if self._plot is not None:
            return self._plotted(self._plot, list(rows))
        return self._table(columns, rows, droppable)

    def batches(
        self,
        columns: Sequence[str],
        batches: Iterable[Sequence[Row]],
        *,
        all_columns: Sequence[str] | None = None,
        droppable: Sequence[str] = (),
    ) -> int:
        """Print a list that comes in parts, each at once; how many rows it had. As `rows`, with the first part for the
        widths of a table's columns."""
        count = 0
        layout: TableLayout | None = None
        names = all_columns or columns
        line_of = csv_lines(names)
        if self.format == "csv":
            self._write(line_of(None))
        for rows in batches:
            count += len(rows)
            if self.format == "json":
                self._json_lines(rows)
            elif self.format == "csv":
                for row in rows:
                    self._write(line_of(row))
            else:
                layout = layout or self._layout(columns, rows, droppable)
                for row in rows:
                    self._write(layout.line(row) + "\n")
            self.flush()
        return count

    def draw(self, plot: Plot) -> None:
        """Have lists drawn. Raises: UsageError with --json and --format; ModuleNotFoundError without plotext."""
        if self.format != "table":
            raise UsageError("--plot draws for people: it goes without --json and --format")
        import_module("plotext")
        self._plot = plot

    def raw(self, data: bytes) -> None:
        """Print bytes as they are, which is for programs: on a terminal they have to be sanitised before."""
        self.lines(memoryview(data))

    def lines(self, text: memoryview) -> None:
        """Print further lines of a list: JSON or CSV in UTF-8 that is sanitised already (message_lines)."""
        stream = self._stream or sys.stdout
        if stream is None or not hasattr(stream, "buffer"):
            self._write(str(text, "utf-8", "backslashreplace"))
            return
        with self._alone():
            _guarded(stream.flush)
            _guarded(lambda: stream.buffer.write(text))
            if self.is_terminal:
                _guarded(stream.flush)

    def record(self, record: Row) -> None:
        """Print one object: a listing for people with nested objects indented, one JSON object, or one CSV row.

        In CSV nested objects are flattened to `outer.inner` columns.
        """
        if self.format == "json":
            self._json_lines([record])
        elif self.format == "csv":
            flat = _flattened(record)
            self._csv(list(flat), [flat])
        else:
            for line in _listing(record, "", LONGEST_SHOWN if self.is_terminal else None):
                self._write(line + "\n")

    def text(self, line: str, *, keep_newlines: bool = False, style: str | None = None) -> None:
        """Print a line that is neither a list nor a record (a hex dump, a script), on a terminal in a style; JSON wraps
        it as `{"text": …}`."""
        if self.format == "json":
            self._json_lines([{"text": line}])
        else:
            text = visible(line, keep_newlines=keep_newlines)
            if self.is_terminal and not keep_newlines:
                text = shortened(text, LONGEST_SHOWN)
            self._styled(text, style)

    def heading(self, line: str) -> None:
        """Say what the list that follows is: above its table, wherever that goes; for CSV and JSON on stderr."""
        say = self.text if self.format == "table" else self.talk
        say("")
        say(said(line))

    def talk(self, line: str) -> None:
        """Say something to the person at the terminal: on stderr, behind the data printed so far."""
        self.flush()
        talk(said(line))

    def flush(self) -> None:
        """Hand everything printed to the system. BrokenPipeError without a reader, WriteFailedError if it fails."""
        stream = self._stream or sys.stdout
        if stream is not None:
            _guarded(stream.flush)

    def end(self) -> None:
        """Name the columns for which the terminal was too narrow, and hand everything to the system."""
        self.flush()
        if self._left_out:
            names = ", ".join(said_title(name.replace("_", " ")) for name in self._left_out)
            for line in wrapped(said(f"not shown at this width: {names} (--json has all)"), "", is_terminal=True):
                talk(line)

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stdout
        if stream is None:
            raise _closed_error()
        with self._alone():
            _guarded(lambda: stream.write(text))

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """While a line is written: no bar beside it, where both are on a terminal."""
        return aside() if self.is_terminal else contextlib.nullcontext()

    def _json_lines(self, rows: Iterable[Row]) -> int:
        count = 0
        for row in rows:
            self._write(json_line(row))
            count += 1
        return count

    def _csv(self, columns: Sequence[str], rows: Iterable[Row]) -> int:
        line_of = csv_lines(columns)
        self._write(line_of(None))
        count = 0
        for row in rows:
            self._write(line_of(row))
            count += 1
        return count

    def _table(self, columns: Sequence[str], rows: Iterable[Row], droppable: Sequence[str]) -> int:
        remaining = iter(rows)
        page = list(itertools.islice(remaining, FIRST_PAGE))
        if not page:
            return 0
        layout = self._layout(columns, page, droppable)
        count = 0
        for row in itertools.chain(page, remaining):
            self._write(layout.line(row) + "\n")
            count += 1
        return count

    def _plotted(self, plot: Plot, rows: list[Row]) -> int:
        width = self._terminal_width() if self.is_terminal else plot.width
        for line in plot.lines(rows, width, getattr(self._stream or sys.stdout, "encoding", None)) if rows else ():
            self.text(line)
        return len(rows)

    def _layout(self, columns: Sequence[str], page: Sequence[Row], droppable: Sequence[str]) -> TableLayout:
        """The layout of a table with these first rows; its header is printed."""
        available = self._terminal_width() if self.is_terminal else None
        layout = table_layout(columns, page, available, droppable, digits=self.digits, keeps_all=self.keeps_all)
        for line in layout.header():
            self._styled(line, HEADING)
        self._left_out.update(dict.fromkeys(layout.left_out))
        return layout

    def _styled(self, line: str, style: str | None) -> None:
        if style is None or not self.is_terminal:
            self._write(line + "\n")
            return
        from rich.console import Console
        from rich.text import Text

        # rich knows NO_COLOR, TERM=dumb and the like; the text is ours and sanitised, and is not parsed as markup. It
        # writes into a text of ours, because it would flush a terminal, which is no end of anything
        made = io.StringIO()
        console = Console(file=made, force_terminal=True, markup=False, emoji=False, highlight=False)
        console.print(Text(line, style=style), soft_wrap=True)
        self._write(made.getvalue())

    @property
    def is_terminal(self) -> bool:
        """Whether the data goes to a terminal."""
        stream = self._stream or sys.stdout
        if stream is not self._asked:
            self._asked, self._is_terminal = stream, stream is not None and stream.isatty()
        return self._is_terminal

    def _terminal_width(self) -> int:
        if self._stream is None:
            import shutil

            return shutil.get_terminal_size().columns
        return int(os.environ.get("COLUMNS", "80"))


def refuse_place(read: StoreLayout | None = None) -> None:
    """RefusedError where standard output was led into a file among those of a store, or in the one that is `read`:
    nothing is written there."""
    try:
        status = os.fstat(1)
        name = os.readlink("/proc/self/fd/1") if stat.S_ISREG(status.st_mode) else ""
    except OSError:  # closed, or a system without /proc
        return
    if name:
        from rmqctl.store.files.outputs import check_output_place

        check_output_place(Path(name), read)


def talk(line: str, *, keep_newlines: bool = False) -> None:
    """Write one sanitised line to stderr; errors of stderr are ignored."""
    if sys.stderr is None:
        return
    pager = running()
    if pager is not None:
        pager.say_later(visible(line, keep_newlines=keep_newlines) + "\n")
        return
    try:
        with aside():
            sys.stderr.write(visible(line, keep_newlines=keep_newlines) + "\n")
            sys.stderr.flush()
    except OSError:
        return


def _listing(record: Row, indent: str, longest: int | None) -> Iterable[str]:
    titles = {name: said_title(visible(str(name)).replace("_", " ")) for name in record}
    plain = [title for name, title in titles.items() if not _is_nested(record[name])]
    width = max(map(width_of, plain), default=0)
    for name, value in record.items():
        title = titles[name]
        if isinstance(value, Mapping) and value:
            yield f"{indent}{title}"
            yield from _listing(value, indent + "  ", longest)
        elif _is_nested(value):
            yield f"{indent}{title}"
            for item in value:
                yield f"{indent}  {cell(item)}"
        else:
            yield f"{indent}{padded(title, width, right=False)}{GAP}{_told(value, name, longest)}"


def _told(value: Any, name: str, longest: int | None) -> str:
    if longest is None:
        return listed(value, name)
    return shown(value, longest) if isinstance(value, str) and value else shortened(listed(value, name), longest)


def _is_nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def _flattened(record: Row, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _guarded(action: Any) -> None:
    try:
        action()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failed(error) from error


def _closed_error() -> WriteFailedError:
    return WriteFailedError("standard output is closed", hint="redirect it to a file or to /dev/null")


def output_failed(error: OSError) -> WriteFailedError:
    """What to say where standard output cannot be written to."""
    why = str(error.strerror or error)
    return output_lost(why) or WriteFailedError(f"cannot write to standard output: {why}")


# Lines that a thread of its own writes: who says them, such as the loop of a server, never waits for who reads them.
#
# A terminal that was stopped (Ctrl-S), a pipe that nobody empties: what is said then is kept up to a bound, and what
# goes beyond it is counted.

_MOST_WAITING = 10_000
# a pipe that can be written to takes so many bytes at once (PIPE_BUF)
_LONGEST_LINE = 4000
_LOOK_MS = 100
_LAST_SECONDS = 1.0


class Beside:
    """Writes what any thread says, in order. A context: in the end pending lines are written, if stderr is read
    soon."""

    def __init__(self, write: Callable[[str], None], most_waiting: int = _MOST_WAITING) -> None:
        """`write` puts a line on stderr."""
        self._write = write
        self._waiting: deque[str] = deque()
        self._most_waiting = most_waiting
        self._left_out = 0
        self._is_ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="said-lines", daemon=True)

    def say(self, line: str) -> None:
        """Have a line written, soon."""
        with self._changed:
            if len(self._waiting) >= self._most_waiting:
                self._left_out += 1
            else:
                self._waiting.append(line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "…")
            self._changed.notify()

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        poll = _poll_of_stderr()
        looks_left = int(_LAST_SECONDS * 1000 / _LOOK_MS)
        while (line := self._next()) is not None:
            while poll is not None and not poll.poll(_LOOK_MS):
                looks_left -= self._is_ending
                if looks_left <= 0:
                    return
            self._write(line)

    def _next(self) -> str | None:
        """The next line, when there is one; None in the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._left_out or self._is_ending)
            if self._waiting:
                return self._waiting.popleft()
            left_out, self._left_out = self._left_out, 0
            return f"{counted(left_out, 'line')} dropped: stderr was not read" if left_out else None


def _poll_of_stderr() -> select.poll | None:
    """Tells when stderr takes a line at once; None where it is no file of the system's."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        poll = select.poll()
        poll.register(sys.stderr.fileno(), select.POLLOUT)
        return poll
    return None


# Paragraphs: a line as it is into a pipe, wrapped to the width of a terminal.

_NARROWEST = 40


def print_paragraph(output: Output, line: str, indent: str = "", *, style: str | None = None) -> None:
    """Print to stdout, on a terminal in this style; lines after the first one begin with `indent`."""
    for part in wrapped(said(line), indent, is_terminal=sys.stdout is not None and sys.stdout.isatty()):
        output.text(part, style=style)


def talk_paragraph(output: Output, line: str, indent: str = "") -> None:
    """The same on stderr."""
    for part in wrapped(said(line), indent, is_terminal=sys.stderr is not None and sys.stderr.isatty()):
        output.talk(part)


def wrapped(line: str, indent: str, *, is_terminal: bool) -> list[str]:
    """The lines of a paragraph, sanitised before they are measured; one line if it is for no terminal."""
    line = visible(line)
    if not is_terminal:
        return [line]
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    if (other := speech()) is not None:
        return other.wrapped(line, width, indent)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
