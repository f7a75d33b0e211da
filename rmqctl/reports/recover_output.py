"""How the verbs that recover a store say what they did."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rmqctl import exit_codes
from rmqctl.formats.wording import counted
from rmqctl.output.cells import human_size

if TYPE_CHECKING:
    from rmqctl.opening import StoreLocation
    from rmqctl.output.output import Output
    from rmqctl.store.recover.report import RecoverReport

SHOWN_OPERATIONS = ("operation", "path", "offset", "bytes")
SHOWN_BRIDGES = ("physical_offset", "end_offset", "reason", "fillers", "padding_bytes", "slots_given_up")


def undo_advice(store: StoreLocation) -> str:
    """The command that takes a change back, as it has to be written; where the commitlog is the journal remembers."""
    return f"`rmqctl undo -s {shlex.quote(str(store.path))}`"


def print_report(report: RecoverReport, output: Output, store: StoreLocation, *, no_journal: bool = False) -> int:
    """Print what a recovery did, or with `dry_run` would do; returns the exit code."""
    record: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
    if output.is_json:
        output.record(record)
    else:
        _for_people(report, record, output, store, no_journal)
    return exit_codes.DAMAGE_OR_NOTHING if report.damaged or report.left else exit_codes.OK


def without_deleted(record: dict[str, Any]) -> None:
    """Leave out of a table how many messages of deleted topics there are where there are none: most stores."""
    if not record["deleted_topic_messages"]:
        del record["deleted_topic_messages"]


def tell_deleted(messages: int, output: Output) -> None:
    """Say how many messages of the log are in no queue because their topics were deleted."""
    if messages:
        of_topics = counted(messages, "message belongs", "messages belong")
        output.talk(f"{of_topics} to a topic that was deleted and created again since: in no queue any more")


def print_operations(operations: list[dict[str, Any]], output: Output) -> None:
    """What a dry run would change, operation by operation and as a sum."""
    if not operations:
        return
    output.heading("It would change:")
    output.rows(SHOWN_OPERATIONS, operations)
    output.talk(extent(operations))


def extent(operations: list[dict[str, Any]]) -> str:
    """How much a plan changes, in a sentence."""
    paths = counted(len({operation["path"] for operation in operations}), "file or directory", "files or directories")
    changed, come = _bytes_of(operations, "write", "clear"), _bytes_of(operations, "create", "install")
    gone = _bytes_of(operations, "move away") + sum(operation.get("replaced_bytes", 0) for operation in operations)
    times = sum(operation["operation"] == "set time" for operation in operations)
    said = [
        f"{human_size(changed)} written or cleared",
        f"{human_size(come)} put in place",
        f"{human_size(gone)} moved away",
        f"{counted(times, 'file time')} set",
    ]
    if times == len(operations):
        return said[-1]
    return f"{paths}: {', '.join(said if times else said[:-1])}"


def _bytes_of(operations: list[dict[str, Any]], *kinds: str) -> int:
    return sum(operation["bytes"] or 0 for operation in operations if operation["operation"] in kinds)


def _for_people(
    report: RecoverReport, record: dict[str, Any], output: Output, store: StoreLocation, no_journal: bool
) -> None:
    operations, damaged, bridged = record.pop("operations"), record.pop("damaged"), record.pop("bridged")
    left = record.pop("left")
    without_deleted(record)
    output.record(record)
    if bridged:
        output.heading("Damage that " + ("would be" if report.dry_run else "was") + " replaced by filler messages:")
        output.rows(SHOWN_BRIDGES, bridged)
    if report.dry_run:
        print_operations(operations, output)
    for span in damaged:
        place = f"{span['physical_offset']}..{span['end_offset']} of {span['file']}"
        output.talk(f"left as it is: {span['reason']} damage at {place}")
    if damaged:
        output.talk("  a broker does not look there either; its messages are lost, those around it are served")
        output.talk("  `rmqctl recover --bridge` puts filler messages there")
    for path in left:
        output.talk(
            f"left as it is: {path} is a folder among the files of the log: 5.x passes over it, 4.x does not start"
        )
    if left:
        output.talk("  `rmqctl repair --only RMQ-FILE-009` moves it beside the store")
    if report.slot_conflicts:
        messages = counted(report.slot_conflicts, "message has a queue offset", "messages have queue offsets")
        output.talk(f"{messages} that another one has, or that cannot be right: in no queue")
        output.talk("  `rmqctl check` names them; `rmqctl salvage --offsets renumber` gives them a slot, in a copy")
    tell_deleted(report.deleted_topic_messages, output)
    if report.unplaceable_messages:
        messages = counted(report.unplaceable_messages, "message has a topic", "messages have topics")
        output.talk(f"{messages} that cannot be a directory name: in no queue")
    if report.journal:
        output.talk(
            f"what was taken out or overwritten is kept in {report.journal}; {undo_advice(store)} brings it back"
        )
    elif report.dry_run:
        pass
    elif not operations:
        output.talk("nothing had to be changed")
    elif no_journal:
        output.talk("nothing of what was removed is kept: this cannot be undone")
