"""`rmqctl doctor`: how a store is, and what to do next, from `info`, `check` and `predict` in one go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, output_options, store_options
from rmqctl.output import outcome as exit_codes
from rmqctl.store.config.releases import VERSIONS

if TYPE_CHECKING:
    from rmqctl.diagnosis import Diagnosis
    from rmqctl.output.output import Output

_COLUMNS = ("severity", "code", "count", "title")


@click.command(
    epilog="""\b
Examples:
  rmqctl doctor /data/store
  rmqctl doctor -s /data/store -c broker.conf      with the sizes and paths that the broker has
  rmqctl doctor /data/store --quick                seconds on any store
  rmqctl doctor /data/store --json | jq -r .state
  rmqctl doctor /data/store && systemctl start rocketmq-broker

`state` is healthy, in-use, interrupted, damaged, loses, refuses or unpredicted.
Exit code 0: nothing is wrong, and a broker that starts here loses nothing. 1: anything else.
5: nothing is wrong, but `predict` does not support such a store."""
)
@click.argument("place", metavar="[STORE]", required=False, type=click.Path(path_type=Path))
@store_options
@click.option("--broker", type=click.Choice(VERSIONS), help="Version that starts. [default: the newest by the files]")
@click.option("--quick", is_flag=True, help="Check names, sizes, heads and tails; not every message.")
@output_options
def doctor(store: StoreLocation, output: Output, place: Path | None, broker: str | None, quick: bool) -> int:
    """Report the state of a store and the next command to run.

    Combines `info`, `check` and `predict` into one verdict with one command to run next: the first line of a
    runbook. The store is not changed. While a broker has the store open, its next start is not predicted.
    """
    from rmqctl.diagnosis import diagnose
    from rmqctl.opening import open_store
    from rmqctl.reports.changes import tell_unknown_settings
    from rmqctl.reports.check_report import command_on

    if place is not None:
        _refuse_two(place, store)
        store = store._replace(path=place)
    with open_store(store) as opened:
        root = opened.files.root
        found = diagnose(opened, store, broker, quick=quick)
    if output.format == "table":
        _print(output, found)
        if found.record["findings"]:
            output.text("")
            output.rows(_COLUMNS, found.record["findings"])
            again = command_on(root, "check", config=store.config_path)
            output.talk(f"`{again}` shows where, and the command for each")
    else:
        output.record(found.record)
    tell_unknown_settings(output, store.config_path)
    if found.record["state"] == "unpredicted":
        return exit_codes.REFUSED
    return exit_codes.OK if found.is_well else exit_codes.DAMAGE_OR_NOTHING


def _refuse_two(place: Path, store: StoreLocation) -> None:
    source = click.get_current_context().get_parameter_source("store_path")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError(f"two stores are named, {place} and -s {store.path}: name one")


def _print(output: Output, found: Diagnosis) -> None:
    from rmqctl.reports.check_report import print_verdict

    said, row, start = found.said, found.record["info"], found.said.start
    print_verdict(output, found.verdict)
    output.text("")
    output.record(
        {
            "store": row["path"],
            "state": said.state.sentence,
            "check": said.check.sentence,
            "start": f"not predicted: {found.start.why}" if start is None else start.sentence,
            "writes": row["writes"]["sentence"].removeprefix("Writes: "),
        }
    )
