"""`rmqctl salvage`: every good message of damaged, renamed or loose files into a new store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, config_option, output_options
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_done
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.salvage.write import SalvageReport

_DEFAULT_FILE_SIZE = 1 << 30
_ADVICE = {
    "stale": "left over from before the log was cut; `--stale` takes them too",
    "renumbered": "stored at the end of their queues",
    "overflow": "stored without properties that do not fit into a frame; their rows hold them",
    "topic": "left out: they would lead outside the store",
}


@click.command(
    epilog="""\b
Examples:
  rmqctl salvage /data/store --to /data/new           a store with damage anywhere in it
  rmqctl salvage a.bin b.bin found/ --to /data/new    loose, renamed or cut commitlog files
  rmqctl salvage disk.img --to /data/new --offsets renumber
  rmqctl salvage /data/store --to /data/new --stale   also messages after a truncation

Exit code 0: everything was recognised and stored. 1: something was not, or no message was found; the report
NEW.lost-and-found.jsonl lists every span. 3: FROM is missing or cannot be read. 6: an I/O error, such as a full disk;
the partial output is removed."""
)
@click.argument("source", metavar="FROM...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The new store; new or empty."
)
@click.option(
    "--offsets",
    type=click.Choice(("keep", "renumber")),
    default="keep",
    show_default=True,
    help="Keep queue offsets, so that consumers continue, or count from 0.",
)
@click.option("--stale", is_flag=True, help="Also extract messages that a truncation left after the log's end.")
@config_option
@output_options
def salvage(
    output: Output, source: tuple[Path, ...], target: Path, offsets: Any, stale: bool, config_path: Path | None
) -> int:
    """Extract every valid message of FROM into a new store.

    FROM are stores, directories, files or block devices. They are only read. A message counts if all its checks hold,
    wherever it is found; copies are stored once. Queues and index of the new store are complete. File sizes are those
    of FROM, or of -c.
    """
    from rmqctl.opening import broker_config
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import tell_left_behind
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.salvage.sources import find_sources

    config = broker_config(StoreLocation(target, config_path))
    sources = find_sources(source, config)
    with progress("searching", lambda: sum(one.data_size for one in sources), "bytes") as bar:
        report = MessageStore.salvage(
            source, target, config=config, offsets=offsets, stale=stale, events=Events(bar.advance)
        )
    note_done(f"the store {target} was made", path=str(target))
    tell_left_behind(output, target.absolute().parent)
    _print(report, output, stale)
    is_whole = not (report.strange_spans or report.left_out or report.renumbered or (report.stale and not stale))
    is_whole = is_whole and "overflow" not in report.causes
    return exit_codes.OK if is_whole else exit_codes.DAMAGE_OR_NOTHING


def _print(report: SalvageReport, output: Output, stale: bool) -> None:
    record = asdict(report)
    if output.format != "table":
        output.record(record)
        return
    causes = record.pop("causes")
    output.record(record | {"config_files": ", ".join(report.config_files) or None})
    for cause, count in causes.items():
        advice = _ADVICE.get(cause)
        if advice and not (cause == "stale" and stale):
            output.talk(f"{cause}: {count} {'row' if count == 1 else 'rows'} in the lost and found: {advice}")
    if report.commitlog_file_size != _DEFAULT_FILE_SIZE:
        output.talk(f"a broker needs mappedFileSizeCommitLog={report.commitlog_file_size} to open it")
