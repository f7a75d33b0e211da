"""`rmqctl recover`: ends the log where it is valid and completes queues and index."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from rmqctl import exit_codes
from rmqctl.options import StoreLocation, dry_run_option, output_options, store_options

if TYPE_CHECKING:
    from rmqctl.output import Output
    from store.recover import RecoverReport

_SHOWN_OPERATIONS = ("operation", "path", "offset", "bytes")


@click.command(
    epilog="""\b
Examples:
  rmqctl recover -s /data/store --dry-run     what would change
  rmqctl recover -s /data/store               after a crash
  rmqctl recover -s /data/store --cut         give up what lies behind damage, as a broker would

Exit code 0: the store is whole. 1: it is usable, but damage that no broker looks at is left in the log. 5: a decision
is needed; nothing was changed."""
)
@store_options
@click.option(
    "--cut", is_flag=True, help="End the log at damage even where good messages follow; they are kept beside."
)
@click.option("--full", is_flag=True, help="Let damage anywhere count, not only in the files a broker would check.")
@dry_run_option
@output_options
def recover(store: StoreLocation, output: Output, cut: bool, full: bool, dry_run: bool) -> int:
    """Mend a store after a crash.

    After a clean stop the last three commitlog files count, after a crash those that the checkpoint does not cover.
    A torn tail is cut. Damage with good messages behind it is refused until you say --cut. Then consume queues and
    index are made complete for the whole log. What is taken out or overwritten is kept in DIR.rmqctl beside the store.
    """
    from rmqctl.opening import open_store
    from rmqctl.progress import progress
    from store.recover import recover as recover_store

    with open_store(store) as files:
        total = sum(file.size for file in files.log.files)
        with progress("reading the commitlog", total, "bytes") as bar:
            report = recover_store(
                files, cut=cut, full=full, dry_run=dry_run, arguments=sys.argv[1:], progress=bar.advance
            )
    _print(report, output)
    return exit_codes.DAMAGE_OR_NOTHING if report.damaged else exit_codes.OK


def _print(report: RecoverReport, output: Output) -> None:
    record: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
    if output.is_json:
        output.record(record)
        return
    operations, damaged = record.pop("operations"), record.pop("damaged")
    output.record(record)
    if report.dry_run and operations:
        output.talk("")
        output.talk("It would change:")
        output.rows(_SHOWN_OPERATIONS, operations)
    for span in damaged:
        place = f"{span['physical_offset']}..{span['end_offset']} of {span['file']}"
        output.talk(f"left as it is: {span['reason']} damage at {place}")
    if damaged:
        output.talk("  a broker does not look there either; its messages are lost, those around it are served")
    if report.unplaceable_messages:
        output.talk(
            f"{report.unplaceable_messages} messages have topics that cannot be directory names: they have no queue"
        )
    if report.journal:
        output.talk(f"what was taken out or overwritten is kept in {report.journal}")
    elif not report.dry_run:
        output.talk("nothing had to be changed")
