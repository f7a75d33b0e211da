"""How the verbs that recover a store say what they did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl import exit_codes
from rmqctl.cells import human_size

if TYPE_CHECKING:
    from rmqctl.output import Output
    from store.recover_report import RecoverReport

SHOWN_OPERATIONS = ("operation", "path", "offset", "bytes")
SHOWN_BRIDGES = ("physical_offset", "end_offset", "reason", "fillers", "padding_bytes", "slots_given_up")


def print_report(report: RecoverReport, output: Output, *, no_journal: bool = False) -> int:
    """Print what a recovery did, or with `dry_run` would do; returns the exit code."""
    record: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
    if output.is_json:
        output.record(record)
    else:
        _for_people(report, record, output, no_journal)
    return exit_codes.DAMAGE_OR_NOTHING if report.damaged else exit_codes.OK


def extent(operations: list[dict[str, Any]]) -> str:
    """How much a plan changes, in a sentence."""
    files = len({operation["path"] for operation in operations})
    changed = sum(operation["bytes"] for operation in operations if operation["operation"] in ("write", "clear"))
    gone = sum(operation["operation"] == "move away" for operation in operations)
    return f"{files} files, {human_size(changed)} written or cleared, {gone} files or directories moved away"


def _for_people(report: RecoverReport, record: dict[str, Any], output: Output, no_journal: bool) -> None:
    operations, damaged, bridged = record.pop("operations"), record.pop("damaged"), record.pop("bridged")
    output.record(record)
    if bridged:
        output.talk("")
        output.talk("Damage that " + ("would be" if report.dry_run else "was") + " replaced by filler messages:")
        output.rows(SHOWN_BRIDGES, bridged)
    if report.dry_run and operations:
        output.talk("")
        output.talk("It would change:")
        output.rows(SHOWN_OPERATIONS, operations)
        output.talk(extent(operations))
    for span in damaged:
        place = f"{span['physical_offset']}..{span['end_offset']} of {span['file']}"
        output.talk(f"left as it is: {span['reason']} damage at {place}")
    if damaged:
        output.talk("  a broker does not look there either; its messages are lost, those around it are served")
        output.talk("  `rmqctl recover --bridge` puts filler messages there")
    if report.unplaceable_messages:
        output.talk(
            f"{report.unplaceable_messages} messages have topics that cannot be directory names: they have no queue"
        )
    if report.journal:
        output.talk(f"what was taken out or overwritten is kept in {report.journal}; `rmqctl undo` brings it back")
    elif report.dry_run:
        pass
    elif not operations:
        output.talk("nothing had to be changed")
    elif no_journal:
        output.talk("nothing of what went was kept: this cannot be undone")
