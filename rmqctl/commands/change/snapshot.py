"""`rmqctl snapshot`: a copy of a store with a manifest, and holding one against its manifest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.flags.options import StoreLocation, dry_run_option, output_options, store_options
from rmqctl.output import outcome as exit_codes
from rmqctl.output.output import note_done
from rmqctl.output.table import said
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output

_PROBLEMS = ("path", "problem", "expected", "found")
_MOVE_PROBLEMS = ("weight", "problem", "path", "detail")
_SHOWN = 20


@click.command(
    epilog="""\b
Examples:
  rmqctl snapshot /backup/store-1 -s /data/store     also while a broker writes to it
  rmqctl snapshot /backup/store-1 -s /data/store -c broker.conf --dry-run      before a copy or a move
  rmqctl snapshot --verify /backup/store-1
  rmqctl snapshot /backup/store-1 -s /data/store --hard-links

A snapshot of a live store holds the log up to the printed offset, and an `abort` file: `rmqctl recover -s DIR`,
or the start of a broker on it, completes its queues. With --hard-links full commitlog files are not copied but get a
second name. A broker removes such files but never rewrites them, and rmqctl gives them bytes of their own first.

Exit code 1: --verify found something that is not as in the manifest, or the copy of --dry-run would fail."""
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@store_options
@click.option("--verify", is_flag=True, help="Verify DIR against its manifest.")
@click.option(
    "--reflink",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="Share blocks with the store, on file systems that can.",
)
@click.option("--hard-links", is_flag=True, help="Hard-link full commitlog files instead of copying them.")
@dry_run_option
@output_options
def snapshot(
    store: StoreLocation,
    output: Output,
    *,
    directory: Path,
    verify: bool,
    reflink: str,
    hard_links: bool,
    dry_run: bool,
) -> int:
    """Copy a store to the new directory DIR, with its holes and times and a manifest with the SHA-256 of each file.

    --dry-run copies nothing. It compares sizes with free space, and names and sizes with the file system's limits. It
    reports a running broker, links, other owners, and with -c paths of broker.conf in the old place.

    DIR appears when it is complete on disk. Brokers ignore the manifest, DIR/rmqctl-snapshot.json.
    """
    if dry_run and verify:
        raise click.UsageError("--verify changes nothing: leave out --dry-run")
    if dry_run:
        return _preflight(store, output, directory)
    return _verify(output, directory) if verify else _take(store, output, directory, reflink, hard_links)


def _preflight(store: StoreLocation, output: Output, directory: Path) -> int:
    """Report what a copy takes."""
    from rmqctl.opening import open_store
    from rmqctl.store.config.config import read_properties

    properties = {} if store.config_path is None else read_properties(store.config_path)
    with open_store(store) as opened:
        found = opened.preflight(directory, properties)
    rows = [one._asdict() for one in found.problems]
    record = asdict(found) | {"problems": rows if output.format != "table" else len(rows)}
    output.record(record)
    if output.format == "table" and rows:
        output.text("")
        output.rows(_MOVE_PROBLEMS, rows)
    return exit_codes.DAMAGE_OR_NOTHING if found.is_refused else exit_codes.OK


def _take(store: StoreLocation, output: Output, directory: Path, reflink: str, hard_links: bool) -> int:
    from rmqctl.opening import disk_bytes, open_store
    from rmqctl.output.terminal import progress
    from rmqctl.reports.changes import tell_left_behind

    with open_store(store) as opened:
        root = opened.files.root
        total = disk_bytes(root, *(one for one in opened.files.layout.commitlog if not one.is_relative_to(root)))
        with progress("copying", total, "bytes") as bar:
            report = opened.snapshot(directory, sharing=reflink, hard_links=hard_links, events=Events(bar.advance))
    note_done(f"the snapshot {directory} was made", path=str(directory))
    tell_left_behind(output, directory.absolute().parent)
    record = asdict(report)
    if not output.is_json:
        record["skipped"] = len(report.skipped)
        for path in report.skipped[:_SHOWN]:
            output.talk(f"not copied, because it is a link or no file: {path}")
    output.record(record)
    return exit_codes.OK


def _verify(output: Output, directory: Path) -> int:
    from rmqctl.opening import disk_bytes
    from rmqctl.output.terminal import progress
    from rmqctl.store.message_store import MessageStore

    with progress("verifying", disk_bytes(directory), "bytes") as bar:
        report = MessageStore.verify_snapshot(directory, events=Events(bar.advance))
    problems = [problem._asdict() for problem in report.problems]
    record = asdict(report) | {"problems": problems}
    if output.format != "table":
        output.record(record)
    else:
        output.record(record | {"problems": len(problems)})
        if problems:
            output.text("")
            output.rows(_PROBLEMS, problems[:_SHOWN])
        if len(problems) > _SHOWN:
            output.text(said(f"and {len(problems) - _SHOWN} more: --json names them"))
    return exit_codes.DAMAGE_OR_NOTHING if problems else exit_codes.OK
