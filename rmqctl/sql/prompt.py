"""The prompt of `rmqctl sql`: statements of several lines, a history, and what the views of a store are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.wording import counted
from rmqctl.output.output import Output, talk
from rmqctl.pipeline.source.tables import TABLES, Table
from rmqctl.reports.outcome import Terminated
from rmqctl.sql.answers import print_answer
from rmqctl.sql.statements import cut_statements

if TYPE_CHECKING:
    import pyarrow as pa

_HELP = """\
statement;     answer a query; it may have several lines and ends with a semicolon
\\d             the views of the store
\\d VIEW        the columns of a view
\\q             quit; so does Ctrl-D. Ctrl-C forgets the line, or ends the query"""
_HISTORY = 1000
_WORDS = (
    "select from where group by order having limit join left anti semi on using distinct count sum min max avg "
    "explain describe show case when then else end and or not null is in like between timestamp interval desc".split()
)


def prompt(run: Callable[[str], pa.Table], output: Output, attached: Iterable[str] = (), *, of_spark: bool) -> None:
    """Ask for statements and answer them until there are no more; an error is told and does not end it. `attached`:
    names of further stores; `of_spark`: whether Spark answers, whose texts have other quotes."""
    views = {**TABLES, **{f"{name}.{view}": table for name in attached for view, table in TABLES.items()}}
    further = "".join(f", {name}.{next(iter(TABLES))}, …" for name in attached)
    talk(f"Views: {', '.join(TABLES)}{further}. End a query with ';'. \\d lists columns, \\? helps, \\q quits.")
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
                output.talk(f"({counted(table.num_rows, 'row')}, {time.monotonic() - began:.1f} s)")


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
        for line in _HELP.split("\n"):
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
