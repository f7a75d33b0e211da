"""`rmqctl info`: what a store holds and what state it is in."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, output_options, store_options
from rmqctl.formats.errors import counted
from rmqctl.output import outcome as exit_codes
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output


@click.command(
    epilog="""\b
Examples:
  rmqctl info -s /data/store
  rmqctl info -s /data/store --quick      without reading the commitlog
  rmqctl info -s /data/store --json
  rmqctl info -c broker.conf --json | jq .writes     why a broker answers CODE 14

Exit code 1: the commitlog is damaged, or the store has files that keep a broker from starting."""
)
@store_options
@click.option(
    "--quick",
    is_flag=True,
    help="Do not read the commitlog: its end (max_offset), messages, times and damage are unknown then, null in JSON.",
)
@output_options
def info(store: StoreLocation, output: Output, quick: bool) -> int:
    """Show what a store holds and what state it is in.

    The commitlog is read from end to end and every message checked, so its numbers are exact.

    One sentence says whether a broker takes messages here, or why not: disks above the ratios of broker.conf, a
    read-only disk, brokerRole, brokerPermission. Flags in the memory of a running broker leave no trace in files.
    """
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.terminal import progress
    from rmqctl.reports.check_report import of_info, print_verdict

    with open_store(store) as opened:
        total = log_bytes(opened.files)
        with progress("reading the commitlog", total, "bytes") as bar:
            row = opened.info(walk_log=not quick, events=Events(bar.advance))
    print_verdict(output, of_info(row, store.config_path))
    if output.format == "table":
        _print_writes(output, row["writes"])
        output.text("")
        output.record({name: value for name, value in row.items() if name != "writes"})
    else:
        output.record(row)
    log = row["commitlog"]
    if log["damaged_spans"]:
        output.talk(f"{counted(log['damaged_spans'], 'damaged span')} in the commitlog: `rmqctl check` says where")
    if row["unfinished_change"] is not None and not row["locked"]:
        output.talk(
            "a change was interrupted: `rmqctl log` shows it, `rmqctl undo` or `rmqctl resume` ends it, "
            "and `rmqctl recover` one that was given up"
        )
    if opened.files.missing_log() is not None:
        output.talk("bring the commitlog back, or name its place: -c broker.conf with storePathCommitLog")
    others = [row[name]["problems"] for name in ("consumequeue", "index", "tiered_index") if row[name] is not None]
    problems = [*log["problems"], *itertools.chain.from_iterable(others)]
    return exit_codes.DAMAGE_OR_NOTHING if log["damaged_spans"] or problems else exit_codes.OK


def _print_writes(output: Output, writes: dict[str, Any]) -> None:
    """Print whether a broker takes messages here, then what files cannot show."""
    from rmqctl.output.output import BAD, print_paragraph, talk_paragraph

    print_paragraph(output, writes["sentence"], style=BAD if writes["accepted"] is False else None)
    for warning in writes["warnings"]:
        talk_paragraph(output, f"note: {warning}", "  ")
    if writes["not_seen"]:
        output.talk("A running broker can also refuse messages for reasons that files do not show:")
        for cause in writes["not_seen"]:
            talk_paragraph(output, f"- {cause}", "  ")
