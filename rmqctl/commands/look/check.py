"""`rmqctl check`: everything that is wrong with a store, with what it means and which command fixes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.flags import options as completing
from rmqctl.flags.options import StoreLocation, output_options, store_options
from rmqctl.flags.spark_options import SparkChoice, job_engine, spark_options
from rmqctl.output import outcome as exit_codes

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.check.check import CheckRun
    from rmqctl.store.message_store import MessageStore


@click.command(
    epilog="""\b
Examples:
  rmqctl check -s /data/store
  rmqctl check -s /data/store --quick              seconds on any store
  rmqctl check -s /data/store --json | jq -r .fix
  rmqctl check -s /data/store --subset 1/7         a share of the log, for cron
  rmqctl check -s /data/store --max-duration 10m --resume
  rmqctl check -s /nfs/store --master spark://m:7077   on a cluster
  rmqctl check --explain RMQ-CQ-001

Exit code 0: nothing, or notices only. 1: errors or warnings. A store may be checked while a broker writes to it."""
)
@store_options
@click.option("--quick", "level", flag_value="quick", help="Names, sizes, heads and tails; not every message.")
@click.option("--full", "level", flag_value="full", help="Also decompress bodies and read past the end of files.")
@click.option("--subset", metavar="N/T", help="Check only the Nth of T parts of the commitlog.")
@click.option("--max-duration", metavar="TIME", help="Stop after 90s, 10m or 2h, at the end of a commitlog file.")
@click.option("--resume", is_flag=True, help="Continue where the last check with --resume stopped (DIR.check.json).")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="As --resume, with this progress file.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first error or warning.")
@click.option(
    "--severity",
    type=click.Choice(["error", "warning", "notice"]),
    default="notice",
    help="Print findings of at least this severity.",
    show_default=True,
)
@click.option("--all", "shows_all", is_flag=True, help="Print every finding, not only the first 5 of each code.")
@click.option("--summary", is_flag=True, help="Also print a summary object at the end.")
@spark_options
@click.option(
    "--explain", metavar="CODE", shell_complete=completing.codes, help="Explain a finding code (no store needed)."
)
@output_options
def check(
    store: StoreLocation,
    output: Output,
    spark: SparkChoice,
    level: str | None,
    subset: str | None,
    max_duration: str | None,
    resume: bool,
    state: Path | None,
    fail_fast: bool,
    severity: str,
    shows_all: bool,
    summary: bool,
    explain: str | None,
) -> int:
    """Find all damage in a store.

    Checks files, every message with its checksums, consume queues and key index against the commitlog both ways,
    checkpoint, configuration and offsets. Each finding explains its meaning and consequences, and names the command
    that fixes it. The store is not changed. docs/findings.md lists all codes.
    """
    from rmqctl.opening import checked_bytes, open_store
    from rmqctl.output.terminal import progress
    from rmqctl.reports.check_report import CheckReport
    from rmqctl.store.options import Events

    if explain is not None:
        return explain_code(explain, output)
    state = _state_file(store, resume, state)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_store(store))
        files = opened.files
        from rmqctl.store.check.cross import parse_subset

        share = None if subset is None else parse_subset(subset)
        seconds = None if max_duration is None else _seconds(max_duration)
        is_whole = level != "quick" and share is None and state is None
        total = checked_bytes(files) if is_whole else None
        check_store = stack.enter_context(_checker(spark, opened))
        with progress("checking", total, "bytes") as bar:
            run: CheckRun = check_store(
                level or "default",
                subset=share,
                max_duration=seconds,
                resume=state,
                fail_fast=fail_fast,
                events=Events(bar.advance),
            )
            report = CheckReport(output, files.root, severity, store.config_path, shows_all=shows_all)
            try:
                report.findings(run)
            except KeyboardInterrupt:
                report.groups()
                if state is not None:
                    output.talk(_interrupted(run.saved_offset, state))
                raise
    report.end(run.summary, summary)
    return exit_codes.DAMAGE_OR_NOTHING if run.summary.alarms else exit_codes.OK


@contextlib.contextmanager
def _checker(spark: SparkChoice, store: MessageStore) -> Iterator[Callable[..., CheckRun]]:
    """What checks: this process, or with --master the tasks of an engine."""
    if spark.master is None:
        yield store.check
        return
    from rmqctl.pipeline.jobs.check import check_with

    with job_engine(spark) as engine:
        yield partial(check_with, engine, store.files)


def _interrupted(offset: int | None, state: Path) -> str:
    """What is kept of a check that was interrupted."""
    kept = "nothing was covered yet" if offset is None else f"the next one with this state goes on at offset {offset}"
    return f"interrupted: {kept} ({state})"


def explain_code(code: str, output: Output) -> int:
    """Print what a finding code means and what to do. UsageError for an unknown one."""
    from rmqctl.formats.errors import UsageError
    from rmqctl.store.check.catalogue import catalogue

    kind = catalogue().get(code.upper())
    if kind is None:
        raise UsageError(f"there is no finding {code}", hint="docs/findings.md lists all of them")
    output.record(
        {
            "code": kind.code,
            "severity": str(kind.severity),
            "title": kind.title,
            "meaning": kind.meaning,
            "causes": kind.causes,
            "action": kind.action,
            "fix": kind.command,
            "issues": list(kind.issues),
        }
    )
    return exit_codes.OK


def _state_file(store: StoreLocation, resume: bool, state: Path | None) -> Path | None:
    """Where it is kept how far the check came; never inside the store."""
    if state is None and not resume:
        return None
    from rmqctl.formats.errors import UsageError
    from rmqctl.store.check.cross import default_path
    from rmqctl.store.files.outputs import check_output_place
    from rmqctl.store.files.remote import is_address

    if is_address(store.path) and state is None:
        raise UsageError("a store on a server has no place beside it", file=store.path, hint="name one: --state FILE")
    root = store.path.resolve()
    path = default_path(root) if state is None else state.resolve()
    if path.is_relative_to(root):
        raise UsageError(
            "is inside the store, which a check must not change", file=path, hint="choose a file outside the store"
        )
    check_output_place(path)
    return path


def _seconds(text: str) -> float:
    """`90`, `90s`, `10m` or `2h` in seconds; UsageError."""
    from rmqctl.formats.errors import UsageError

    units = {"s": 1, "m": 60, "h": 3600}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{text!r} is no duration", hint="write it as 90s, 10m or 2h")
    return seconds
