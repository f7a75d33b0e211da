"""`rmqctl sql`: queries over a store, in this process or on Spark."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from rmqctl.flags.options import StoreLocation, as_recovered_option, store_options, yes_option
from rmqctl.flags.spark_options import SparkChoice, spark_options, told_spark_session
from rmqctl.formats.errors import UnreadableError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.outcome import ToldDamage
from rmqctl.output.output import Output, note_done, talk
from rmqctl.output.table import said
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.sql_prompt import Ask

# views that have what queues lead to, and nothing of messages that are in no queue yet
_QUEUES = re.compile(r"\b(consumequeue|consumer_offsets)\b", re.IGNORECASE)
_FORMATS = ("table", "json", "csv", "parquet", "arrow")


@click.command(
    epilog="""\b
Examples:
  rmqctl sql -s /data/store "select topic, count(*) n from messages group by topic order by n desc"
  rmqctl sql -s /data/store --json "select * from findings where severity = 'error'"
  rmqctl sql -s /data/store -o big.parquet "select msg_id, topic, size from messages where size > 1000000"
  rmqctl sql -s /data/store "select g.consumer_group, sum(g.lag) lag from consumer_offsets g group by all"
  rmqctl sql -s /data/store
  rmqctl sql -s '/data/broker-*/store' "select store, count(*) n from messages group by store"
  rmqctl sql -s /data/a --attach b=/data/b "select * from messages anti join b.messages using (unique_key)"
  rmqctl sql -s /data/store --master spark://m:7077 "select count(*) from messages"

Views: messages, copied_messages, consumequeue, index_entries, consumer_offsets, topics, findings. Without a query
there is a prompt; `\\d` lists views and columns there. Queries skip damage; the view findings lists it. Times are
UTC. SQL is DuckDB's, and Spark's with --master; statements that would change anything are refused.

-s may be a pattern in quotes: its stores are read as one, with the columns store and broker_name. The views of a store
that is attached are NAME.messages and so on. -c is about the store of -s."""
)
@click.argument("query", metavar="[QUERY]", required=False)
@store_options
@as_recovered_option
@click.option(
    "--attach",
    "attach",
    multiple=True,
    metavar="NAME=DIR",
    help="Another store, whose views are NAME.messages and so on; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON Lines.")
@click.option("--format", "chosen_format", type=click.Choice(_FORMATS), help="How to print or write; table.")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write into FILE.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there: asks, or needs --yes.")
@yes_option
@click.option("--split-size", metavar="SIZE", help="Bytes of commitlog a task reads, as 64m; 128m.")
@click.option(
    "--clock-tolerance",
    metavar="TIME",
    help="Largest step back of the broker's clock: conditions on store_timestamp skip parts further away; "
    "1h; none: skip nothing.",
)
@click.option(
    "--key-index",
    type=click.Choice(("checked", "trusted", "off")),
    help="Use of the key index: checked reads what it lacks; trusted uses it alone and reads less; off walks the log.",
)
@spark_options
def sql(
    query: str | None,
    store: StoreLocation,
    attach: tuple[str, ...],
    as_json: bool,
    chosen_format: str | None,
    target: Path | None,
    overwrite: bool,
    yes: bool,
    split_size: str | None,
    clock_tolerance: str | None,
    key_index: str | None,
    spark: SparkChoice,
) -> int:
    """Query one or several stores in SQL, or open a prompt.

    QUERY is one statement, or several with semicolons between them; `-` or a pipe: from standard input.
    """
    from rmqctl.output.outcome import require_agreed_file
    from rmqctl.pipeline.sql.stores import attached_stores
    from rmqctl.sql_prompt import cut_statements, prompt

    # for a file --json is about the summary, as everywhere
    chosen = "json" if as_json and target is None else chosen_format
    _check(query, chosen, target, overwrite)
    printed = chosen if target is None else None
    output = Output(as_json or printed == "json", "csv" if printed == "csv" else "table")
    statements: list[str] | None = None
    if query is not None or not _is_a_terminal(sys.stdin):
        text = _standard_input() if query in (None, "-") else str(query)
        found = cut_statements(text, of_spark=spark.is_spark)
        statements = [*found.statements, *([found.rest] if found.rest else [])]
        if not statements:
            raise click.UsageError("there is no query")
        if target is not None and len(statements) > 1:
            raise click.UsageError("one FILE takes one query")
    # everything that can be said without an engine is said before it starts
    attached = attached_stores(attach)
    options = _source_options(store, split_size=split_size, clock_tolerance=clock_tolerance, key_index=key_index)
    damage = ToldDamage(output)
    asks_queues = statements is None or any(_QUEUES.search(one) for one in statements)
    for one in _stores(store, options, attached):
        _require_readable(one, target, overwrite, damage if asks_queues else None)
    if target is not None:
        require_agreed_file(target, overwrite, yes)
    with _asking(spark, str(store.path), options, attached, Events(damage=damage, note=output.talk)) as ask:
        if statements is None:
            prompt(ask, output, attached, of_spark=spark.is_spark)
        elif target is not None:
            _write(ask, statements[0], target, chosen, overwrite, output)
        else:
            _print(ask, statements, output)
        output.flush()
    return exit_codes.DAMAGE_OR_NOTHING if damage.count or damage.is_uncertain else exit_codes.OK


@contextlib.contextmanager
def _asking(
    spark: SparkChoice, path: str, options: dict[str, str], attached: dict[str, str], events: Events
) -> Iterator[Ask]:
    from rmqctl.sql_prompt import asking_here, asking_spark

    if not spark.is_spark:
        with asking_here(path, options, attached, events) as ask:
            yield ask
        return
    with told_spark_session(spark) as session:
        yield asking_spark(session, path, options, attached, events)


def _stores(store: StoreLocation, options: dict[str, str], attached: dict[str, str]) -> Iterator[StoreLocation]:
    """Every store that is read, with the broker.conf that goes with it."""
    from rmqctl.pipeline.spark.options import parse_options
    from rmqctl.pipeline.sql.stores import options_by_schema

    for given in options_by_schema(str(store.path), options, attached).values():
        for one in parse_options(given).stores():
            yield StoreLocation(Path(one.path), None if one.config is None else Path(one.config))


def _require_readable(store: StoreLocation, target: Path | None, overwrite: bool, lag: ToldDamage | None) -> None:
    """What opening the store raises; UsageError where FILE would lie in it, or is there already. `lag` is given what
    the log holds after its queues, which their views cannot have."""
    from rmqctl.opening import open_store
    from rmqctl.store.answers.undispatched import undispatched
    from rmqctl.store.files.outputs import require_new_file

    with open_store(store) as opened:
        lost = opened.files.lost_log()
        if lost is not None:
            talk(said(f"damage: {lost}"))
        if target is not None:
            require_new_file(target, overwrite, opened.files.layout)
        if lag is not None:
            undispatched(opened.files, Events(damage=lag))


def _standard_input() -> str:
    if sys.stdin is None:
        raise UnreadableError("standard input is closed", hint="give the query as an argument")
    return sys.stdin.read()


def _is_a_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _check(query: str | None, chosen: str | None, target: Path | None, overwrite: bool) -> None:
    """Everything that is wrong with the flags, before anything takes its time."""
    from rmqctl.sql_prompt import file_format
    from rmqctl.store.files.outputs import require_new_file

    if target is not None:
        if chosen == "table":
            raise click.UsageError("a table is for a terminal: files are json, csv, parquet or arrow")
        file_format(target, chosen)
        require_new_file(target, overwrite)
        if query is None and _is_a_terminal(sys.stdin):
            raise click.UsageError("-o FILE needs a query")
    elif chosen in ("parquet", "arrow"):
        raise click.UsageError(f"--format {chosen} needs a file: add -o FILE")
    if query is None and _is_a_terminal(sys.stdin) and not _is_a_terminal(sys.stdout):
        raise click.UsageError("there is no query, and no terminal for a prompt")


def _source_options(store: StoreLocation, **given: str | None) -> dict[str, str]:
    """Options of the data source; UsageError for one that says nothing."""
    from rmqctl.pipeline.spark.options import parse_options
    from rmqctl.store.files.remote_file_system import storage_options

    options = {name: value for name, value in given.items() if value is not None}
    if store.config_path is not None:
        options["config"] = str(store.config_path.absolute())
    if storage_options():
        options["storage_options"] = json.dumps(storage_options())
    parse_options({**options, "path": str(store.path)})
    return options


def _print(ask: Ask, statements: list[str], output: Output) -> None:
    from rmqctl.sql_prompt import print_answer

    for number, statement in enumerate(statements):
        if number and output.format == "table":
            output.text("")
        print_answer(output, ask(statement))
        output.flush()


def _write(ask: Ask, statement: str, target: Path, chosen: Any, overwrite: bool, output: Output) -> None:
    from rmqctl.sql_prompt import file_format, write_answer
    from rmqctl.store.files.outputs import STANDARD_OUTPUT

    kind = file_format(target, chosen)
    table = ask(statement)
    size = write_answer(table, target, kind, overwrite, {"rmqctl.query": statement})
    if target == STANDARD_OUTPUT:
        output.talk(f"{counted(table.num_rows, 'row')} in {counted(size, 'byte')} on standard output")
        return
    note_done(f"{counted(table.num_rows, 'row was', 'rows were')} written to {target}", path=str(target))
    output.record({"path": str(target), "format": kind, "rows": table.num_rows, "bytes": size})
