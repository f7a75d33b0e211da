"""`rmqctl twin`: a store of the same shape with all names and bodies replaced, to be sent to others."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, config_option, output_options
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_done
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output


@click.command(
    epilog="""\b
Examples:
  rmqctl twin /data/store /tmp/twin --anonymise
  rmqctl check -s /tmp/twin                  finds what `rmqctl check -s /data/store` finds

Exit code 3: SRC has a RocksDB with entries, a DLedger log or a folder of unknown content. 5: DST exists, or a
broker has SRC open: make a snapshot, then its twin. 6: an I/O error, such as a full disk; nothing is left."""
)
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("target", metavar="DST", type=click.Path(path_type=Path))
@click.option("--anonymise", is_flag=True, help="Replace topics, groups, hosts, keys, properties and bodies.")
@config_option
@output_options
def twin(output: Output, source: Path, target: Path, anonymise: bool, config_path: Path | None) -> int:
    """Copy the store SRC to the new directory DST, with all text replaced and nothing else.

    Offsets, sizes, times, queues, lag and damage stay, so `check`, `predict` and `recover` answer as on SRC. Equal
    names become equal words of the same length. The key is drawn for each twin and kept nowhere. RocketMQ's own names
    and numbers in settings stay. SRC is only read.
    """
    if not anonymise:
        raise click.UsageError("a twin is made with --anonymise; `rmqctl snapshot` copies a store as it is")
    from rmqctl.opening import disk_bytes, open_store
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import tell_left_behind
    from rmqctl.store.twin.twin import make_twin

    location = StoreLocation(source, config_path)
    with open_store(location) as opened, progress("copying", disk_bytes(source), "bytes") as bar:
        report = make_twin(opened.files, target, Events(bar.advance))
    note_done(f"the twin {target} was made", path=str(target))
    tell_left_behind(output, target.absolute().parent)
    output.record(asdict(report))
    return exit_codes.OK
