"""`rmqctl stats`: what is in a store, counted: by topic, queue, tag, producer host and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import (
    StoreLocation,
    as_recovered_option,
    limit_option,
    output_options,
    plot_option,
    store_options,
    time_options,
    topic_option,
)
from rmqctl.flags.spark_options import SparkChoice, job_engine, spark_options
from rmqctl.formats.errors import NotFoundError, counted
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqctl.output.output import Output
    from rmqctl.store.store_files import StoreFiles

_BY = "topic, queue, tag, host, minute, hour, day"
_TABLE = (
    "messages",
    "bytes",
    "average_size",
    "shortest_delay",
    "p99_delay",
    "longest_delay",
    "duplicates",
    "missing_offsets",
    "repeated_offsets",
    "clock_jumps",
    "first_store_timestamp",
    "last_store_timestamp",
)
# what a narrow terminal goes without, first first
_DROPPABLE = (
    "first_store_timestamp",
    "average_size",
    "last_store_timestamp",
    "longest_delay",
    "clock_jumps",
    "shortest_delay",
    "repeated_offsets",
    "missing_offsets",
    "duplicates",
)
_BAR = 40


@click.command(
    epilog="""\b
Examples:
  rmqctl stats -s /data/store                          the whole picture
  rmqctl stats -s /data/store --by topic -n 10         the ten largest topics
  rmqctl stats -s /data/store --by host,day -t Orders  who sent how much, day by day
  rmqctl stats -s /data/store --by hour --plot         a line over time
  rmqctl stats -s /data/store --by queue --json | jq 'select(.missing_offsets > 0)'
  rmqctl stats -s /data/store --master spark://m:7077  on many machines

Delays are from born (the producer's clock) to stored (the broker's), in ms: negative ones mean that the producer's
clock is ahead. 99 of 100 messages were not delayed longer than the p99 delay, the upper end of a bar of the histogram.
A duplicate has the unique key of an earlier message of its topic. Exit code 1: the commitlog is damaged, or nothing
matched."""
)
@store_options
@as_recovered_option
@click.option("--by", metavar="NAME,…", help=f"A row for each group instead: {_BY}.")
@topic_option
@time_options
@limit_option.but(help="Print the first N rows of --by.")
@click.option("--no-duplicates", is_flag=True, help="Do not look for duplicate unique keys, which takes the most time.")
@spark_options
@plot_option.but(help="Draw messages by topic, or by --by, as bars; one unit of time as a line.")
@output_options
def stats(
    store: StoreLocation,
    output: Output,
    by: str | None,
    topic: str | None,
    begin: int | None,
    end: int | None,
    limit: int | None,
    no_duplicates: bool,
    spark: SparkChoice,
    is_plot: bool,
) -> int:
    """Count what is in the commitlog.

    Messages and bytes, sizes, delays from born to stored, duplicate unique keys, missing and repeated queue offsets,
    places where the broker's clock went back. Every message is checked on the way. Queue offsets and the clock are
    checked over the whole log, regardless of -b and -e.
    """
    from rmqctl.opening import open_store
    from rmqctl.output.times import now_ms

    wanted = _dimensions(by)
    if limit is not None and not wanted:
        raise click.UsageError("-n goes with --by")
    if is_plot:
        wanted = wanted or ["topic"]
        _set_plot(output, wanted)
    with open_store(store) as opened:
        from rmqctl.pipeline.views import require_duckdb

        require_duckdb("counting")  # before what cannot even be imported without it
        from rmqctl.pipeline.jobs.stats import StatsRequest, dimensions_of, group_rows, key_names, stats_summary
        from rmqctl.store.queues.dispatch import LMQ_PREFIX

        dimensions = dimensions_of(wanted or (["topic"] if output.format == "csv" else []))
        request = StatsRequest(dimensions, topic, begin, end, now_ms(), not no_duplicates)
        found = _counted(opened.files, request, spark)
        if found.total is None:
            raise opened.files.lost_log() or NotFoundError(
                "no message matched" if topic or begin is not None or end is not None else "the store has no messages",
                hint="messages of a light queue are stored in other topics: `rmqctl ls -t` counts them"
                if (topic or "").startswith(LMQ_PREFIX)
                else "`rmqctl info` says what the store holds",
            )
        if dimensions:
            rows = group_rows(found)
            columns = [*key_names(dimensions), *(name for name in _TABLE if name in rows[0])]
            output.rows(
                columns,
                rows[:limit],
                all_columns=[name for name in rows[0] if name not in ("sizes", "delays")],
                droppable=_DROPPABLE,
            )
        else:
            _print_summary(stats_summary(found, opened.files.log), output)
    damage = found.damage
    if damage.spans:
        spans, size = counted(damage.spans, "damaged span"), counted(damage.bytes, "byte")
        output.talk(f"not counted: {spans}, {size}; `rmqctl check` says where")
    return exit_codes.DAMAGE_OR_NOTHING if damage.spans else exit_codes.OK


def _set_plot(output: Output, wanted: list[str]) -> None:
    from rmqctl.output.plot import Plot, joined
    from rmqctl.pipeline.jobs.stats_sql import UNITS

    def label(row: Mapping[str, Any]) -> str:
        # the columns that name a row come first
        return joined(*list(row)[: len(wanted)])(row)

    plot = Plot(f"messages by {', '.join(wanted)}", "messages", label)
    if len(wanted) == 1 and wanted[0] in UNITS:
        plot = plot._replace(time=f"{wanted[0]}_timestamp", step=UNITS[wanted[0]])
    output.draw(plot)


def _dimensions(by: str | None) -> list[str]:
    known = _BY.split(", ")
    names = [name.strip() for name in by.split(",") if name.strip()] if by is not None else []
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is not one of {_BY}", param_hint="'--by'")
    if by is not None and not names:
        raise click.BadParameter(f"names none of {_BY}", param_hint="'--by'")
    return names


def _counted(files: StoreFiles, request: Any, spark: SparkChoice) -> Any:
    from rmqctl.opening import log_bytes
    from rmqctl.output.terminal import progress
    from rmqctl.pipeline.jobs.stats import stats as count

    total = log_bytes(files)
    with job_engine(spark) as engine, progress("counting", total, "bytes") as bar:
        return count(engine, files, request, events=Events(progress=bar.advance))


def _print_summary(row: dict[str, Any], output: Output) -> None:
    if output.is_json:
        output.record(row)
        return
    lists = {name: row.pop(name) for name in ("sizes", "delays", "topics")}
    parts = {name: row[name].pop("first") for name in ("duplicates", "queue_offsets", "damage") if row[name]}
    jumps = row["clock"].pop("largest")
    output.record(row)
    for title, bars in (("size in bytes", lists["sizes"]), ("born to stored, ms", lists["delays"])):
        output.text("")
        for line in _histogram(title, bars):
            output.text(said(line))
    output.text("")
    output.rows(["topic", *_TABLE], lists["topics"], droppable=_DROPPABLE)
    _print_list("duplicate unique keys", parts.get("duplicates"), output)
    _print_list("uneven queues", parts["queue_offsets"], output)
    _print_list("clock went back", jumps, output)
    _print_list("damage", parts["damage"], output)


def _print_list(title: str, rows: list[dict[str, Any]] | None, output: Output) -> None:
    if rows:
        output.text("")
        output.text(said(f"{title}:"))
        output.rows(list(rows[0]), rows, droppable=("detail",))


def _histogram(title: str, bars: list[dict[str, int]]) -> list[str]:
    most = max((bar["messages"] for bar in bars), default=1)
    edges = [(str(bar["at_least"]), str(bar["at_most"])) for bar in bars]
    low, high = (max((len(pair[side]) for pair in edges), default=0) for side in (0, 1))
    count = max((len(str(bar["messages"])) for bar in bars), default=0)
    lines = [title]
    for (begin, end), bar in zip(edges, bars, strict=True):
        drawn = "#" * max(1, round(_BAR * bar["messages"] / most))
        lines.append(f"  {begin:>{low}} - {end:>{high}}  {bar['messages']:>{count}}  {drawn}")
    return lines
