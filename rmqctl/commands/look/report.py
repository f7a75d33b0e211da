"""`rmqctl report`: one or many stores as a page of HTML that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, output_options, store_options, yes_option
from rmqctl.formats.errors import RmqctlError, UsageError
from rmqctl.output import outcome as exit_codes

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.report.numbers import ReportScope


@click.command(
    epilog="""\b
Examples:
  rmqctl report -s /data/store -o report.html
  rmqctl report /data/broker-a /data/broker-b -o report.html
  rmqctl report /data/store -o report.html --anonymise      to be sent to others
  rmqctl report /data/store -o report.html --quick          without reading every message
  rmqctl report -c broker.conf -o report.html --overwrite --yes

Exit code 0: every store is intact. 1: the page lists problems. 3: no store could be read, and no page is written."""
)
@click.argument("places", metavar="[STORE]...", nargs=-1, type=click.Path(path_type=Path))
@store_options
@click.option(
    "-o", "--output", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write this file of HTML, `-` for stdout.",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there: asks, or needs --yes.")
@yes_option
@click.option("--anonymise", is_flag=True, help="Replace topics, groups, hosts, keys and paths.")
@click.option(
    "--bodies/--no-bodies", default=False, help="Show the beginning of dead letters' bodies.", show_default=True
)
@click.option("--quick", is_flag=True, help="Do not read the whole log: no map, rates and delays.")
@output_options
def report(
    places: tuple[Path, ...],
    store: StoreLocation,
    output: Output,
    target: Path,
    overwrite: bool,
    yes: bool,
    anonymise: bool,
    bodies: bool,
    quick: bool,
) -> int:
    """Write a page about stores: verdict, damage, rates, lag, delays, dead letters and the next start.

    The page is one file without scripts that opens from a mail, in light and dark, and prints. Its numbers are those of
    doctor, check, predict, du, stats, groups, delays and dlq with --json; it holds them as JSON, too. Stores are not
    changed.

    With --anonymise, names of topics, groups, hosts, keys and files are replaced, the same name by the same word on the
    whole page. No one can compute the names back.
    """
    from rmqctl.output.outcome import require_agreed_file
    from rmqctl.output.times import now_ms
    from rmqctl.report.numbers import ReportScope
    from rmqctl.report.page import render
    from rmqctl.store.files.outputs import STANDARD_OUTPUT

    stores = _stores(places, store)
    if anonymise and bodies:
        raise UsageError("--bodies shows what --anonymise hides")
    for one in stores:
        _require_target(target, one, overwrite)
    require_agreed_file(target, overwrite, yes)
    wanted = ReportScope(now_ms(), quick, bodies)
    rows = _numbers(stores, wanted)
    notes = [] if bodies else ["Bodies of messages are left out"]
    if anonymise:
        from rmqctl.report.anonymise import anonymised

        rows = anonymised(rows)
        notes.append("Names are replaced")
    page = render(rows, wanted.now, notes=notes)
    _write(page, target, overwrite, output)
    for row in rows:
        if not row["is_well"]:
            output.talk(f"{row['path']}: {row['sentence']}")
    if target != STANDARD_OUTPUT:
        states = ", ".join(row["state"] for row in rows)
        output.record({"path": str(target), "bytes": len(page), "stores": len(rows), "state": states})
    return exit_codes.OK if all(row["is_well"] for row in rows) else exit_codes.DAMAGE_OR_NOTHING


def _write(page: bytes, target: Path, overwrite: bool, output: Output) -> None:
    from rmqctl.reports.changes import tell_left_behind
    from rmqctl.store.files.outputs import STANDARD_OUTPUT, new_file

    if target == STANDARD_OUTPUT:
        output.raw(page)
        output.flush()
        return
    with new_file(target, overwrite) as file:
        file.write(page)
    tell_left_behind(output, target.absolute().parent)


def _stores(places: tuple[Path, ...], store: StoreLocation) -> list[StoreLocation]:
    """Return the stores that are meant."""
    if not places:
        return [store]
    if click.get_current_context().get_parameter_source("store_path") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError(f"stores are named with and without -s: {store.path} and {places[0]}")
    if len(places) > 1 and store.config_path is not None:
        raise click.UsageError("-c is the configuration of one store")
    return [store._replace(path=place) for place in places]


def _require_target(target: Path, store: StoreLocation, overwrite: bool) -> None:
    """RefusedError for a file that exists or is in the store."""
    from rmqctl.opening import broker_config
    from rmqctl.store.files.outputs import require_new_file

    require_new_file(target, overwrite, broker_config(store, lambda _: None).layout(store.path))


def _numbers(stores: list[StoreLocation], wanted: ReportScope) -> list[dict[str, Any]]:
    """Return the numbers of each store; what is wrong with one that cannot be read, unless there is no other."""
    from rmqctl.report.numbers import numbers_of, unread

    rows: list[dict[str, Any]] = []
    errors: list[RmqctlError] = []
    for one in stores:
        try:
            rows.append(numbers_of(one, wanted))
        except RmqctlError as error:
            errors.append(error)
            rows.append(unread(one, error))
    if len(errors) == len(stores):
        raise errors[0]
    return rows
