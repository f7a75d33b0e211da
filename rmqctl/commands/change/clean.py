"""`rmqctl clean`: remove expired commitlog files, and the files of queues and index that pointed into them only."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.flags.options import StoreLocation, dry_run_option, output_options, store_options, yes_option, zone_option
from rmqctl.flags.types import COUNT, SPAN, TIME
from rmqctl.formats.errors import UsageError, counted
from rmqctl.opening import broker_config, open_store
from rmqctl.output.outcome import agrees
from rmqctl.output.output import Output, note_done
from rmqctl.output.table import human_size
from rmqctl.output.times import format_time, now_ms
from rmqctl.reports.changes import ToldUnread, print_forecast, told_users
from rmqctl.store.clean.cleaner import CleanReport
from rmqctl.store.clean.options import options_from_config
from rmqctl.store.clean.plan import Because, FileDecision, messages_before
from rmqctl.store.config.config import cleaning_hours
from rmqctl.store.info.info import FileInUse, files_in_use
from rmqctl.store.options import ChangeOptions, Events

if TYPE_CHECKING:
    from rmqctl.store.message_store import MessageStore

# what a narrow terminal goes without, first first
_DROPPABLE = ("detail", "kind", "modified_timestamp")
COLUMNS = ("kind", "file", "size", "modified_timestamp", "action", "reason", "detail")
# Files of these kinds are few enough to be listed even where they stay.
_ALWAYS_LISTED = ("commitlog", "index")
_FILES = {
    "commitlog": "commitlog file",
    "consumequeue": "consume queue file",
    "batchconsumequeue": "batch consume queue file",
    "consumequeue_ext": "consume queue extension file",
    "index": "index file",
}
_KEPT = {
    Because.NOT_DUE: "neither the hour nor the disks ask for a deletion",
    Because.YOUNG: "not yet old enough (--older-than)",
    Because.BEHIND: "behind a file that is kept",
    Because.BATCH_MAXIMUM: "enough for one run (--batch-max)",
    Because.HELD: "a reader holds it",
    Because.LAST: "the last one of its queue or log",
    Because.PREALLOCATED: "holds nothing yet",
    Because.STILL_USED: "points at messages that are kept",
    Because.DAMAGED: "damaged",
}


@click.command()
@store_options
@output_options
@click.option(
    "--older-than", type=SPAN, metavar="SPAN", help="Age of files that are removed, by their mtime.  [default: 72h]"
)
@click.option("--at-once", is_flag=True, help="Remove files of any age, up to --batch-max, except the last.")
@click.option("--batch-max", type=COUNT, metavar="N", help="Commitlog files per run.  [default: 10]")
@click.option("--scheduled", is_flag=True, help="The broker's own rule: only at --delete-when or with full disks.")
@click.option("--delete-when", metavar="HOURS", help="With --scheduled: local hours, as 04;16.  [default: 04]")
@click.option(
    "--disk-ratio",
    type=click.IntRange(0, 100),
    metavar="PERCENT",
    help="With --scheduled: use of the disk from which expired files are removed.  [default: 75]",
)
@click.option(
    "--interval-forcibly",
    type=SPAN,
    metavar="SPAN",
    help="How long a reader in this process may delay a removal.  [default: 120s]",
)
@click.option("--accept-gaps", is_flag=True, help="Accept files missing inside the commitlog.")
@click.option(
    "--crashed",
    is_flag=True,
    help="Also clean a store that crashed; removes only expired commitlog files that recovery does not need.",
)
@click.option("--now", "at", type=TIME, metavar="TIME", help="With --dry-run, --forecast: use this time as now.")
@click.option("--forecast", is_flag=True, help="Print when each file expires; change nothing.")
@zone_option
@dry_run_option
@yes_option
def clean(
    store: StoreLocation,
    output: Output,
    *,
    older_than: int | None,
    at_once: bool,
    batch_max: int | None,
    scheduled: bool,
    delete_when: str | None,
    disk_ratio: int | None,
    interval_forcibly: int | None,
    accept_gaps: bool,
    crashed: bool,
    at: int | None,
    forecast: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove expired files for good, and free their space. This cannot be undone.

    The oldest commitlog files go first, up to the first young one or --batch-max; the last file always stays. Queue
    and index files that only point at removed messages follow. The command prints the number of messages and the
    groups that have not read them, and prompts; without a terminal it needs --yes. Defaults come from -c broker.conf,
    else from RocketMQ. Without --scheduled, hour and disk usage do not matter.

    --forecast prints when a broker would remove each file, by age, hour and disk usage.

    Recover a crashed store first. If its disk is too full for that, --crashed frees space and needs none; a later
    `rmqctl clean` removes queue and index files.
    """
    _require_sense(scheduled, forecast, delete_when, disk_ratio, at, at_once=at_once, crashed=crashed, dry_run=dry_run)
    given: dict[str, Any] = {
        "reserved_time": older_than,
        "batch_maximum": batch_max,
        "delete_when": delete_when,
        "maximum_ratio": disk_ratio,
        "forced_after": interval_forcibly,
    }
    options = replace(
        options_from_config(broker_config(store)),
        at_once=at_once,
        scheduled=scheduled or forecast,
        accept_gaps=accept_gaps,
        crashed=crashed,
        **{name: value for name, value in given.items() if value is not None},
    )
    now = now_ms() if at is None else at
    if forecast:
        with open_store(store) as opened:
            print_forecast(opened.forecast_clean(options, now=now), output, store.path)
            _tell_misdated(opened, output, store)
        return
    with open_store(store) as opened:
        plan = opened.clean(options, now=now, change=ChangeOptions(dry_run=True))
        loss, in_use = _loss(opened, plan), _in_use(opened, plan)
        _tell_misdated(opened, output, store, plan)
    if dry_run or not plan.removed:
        _show(store.path, plan._replace(dry_run=dry_run), output, loss, in_use)
        return
    if not yes:
        _summarise(plan, output, loss)
    if not agrees(_asked(plan, loss), yes=yes):
        output.talk("nothing was removed")
        return
    with open_store(store) as opened:  # under the lock the plan is made again from what is there then
        report = opened.clean(options, now=now, change=ChangeOptions(command_line=sys.argv[1:]))
    if report.removed:
        removed = counted(len(report.removed), "file was", "files were")
        note_done(f"{removed} removed", files_removed=len(report.removed), min_offset=report.min_offset)
    _show(store.path, report, output, loss)


def _tell_misdated(opened: MessageStore, output: Output, store: StoreLocation, plan: CleanReport | None = None) -> None:
    """Name the files whose mtimes, which a copy or a restore changed, keep them longer than their messages."""
    from rmqctl.reports.check_report import command_on
    from rmqctl.store.clean.plan import misdated_files

    if plan is not None and all(item.because is not Because.YOUNG for item in plan.kept):
        return
    younger = [one for one in misdated_files(opened.files) if one.difference > 0]
    if younger:
        is_one = len(younger) == 1
        files = f"{counted(len(younger), 'commitlog file')} {'is' if is_one else 'are'} younger than the messages"
        fix = command_on(store.path, "repair", "--only", younger[0].code, config=store.config_path)
        output.talk(f"note: by mtime {files} in {'it' if is_one else 'them'} and expire later: `{fix}`")


class _Loss(NamedTuple):
    """What a cleaning takes: messages that consume queues lead to, None if not known; and what of it is unread."""

    messages: int | None
    unread: ToldUnread


def _loss(opened: MessageStore, plan: CleanReport) -> _Loss:
    unread = ToldUnread()
    if plan.removed:
        say = unread.unknown.append
        unread.rows = opened.unread_before(
            plan.min_offset, events=Events(damage=lambda error: say(str(error)), note=say)
        )
    return _Loss(messages_before(opened.files, plan.min_offset), unread)


def _require_sense(
    scheduled: bool,
    forecast: bool,
    delete_when: str | None,
    disk_ratio: int | None,
    at: int | None,
    *,
    at_once: bool,
    crashed: bool,
    dry_run: bool,
) -> None:
    """UsageError for flags that contradict each other."""
    if forecast and (at_once or crashed or dry_run):
        raise UsageError(
            "--forecast says what a broker would do, and changes nothing",
            hint="leave out --at-once, --crashed and --dry-run",
        )
    if not (scheduled or forecast) and (delete_when is not None or disk_ratio is not None):
        raise UsageError("--delete-when and --disk-ratio belong to the broker's own rule", hint="add --scheduled")
    if delete_when is not None and not cleaning_hours(delete_when):
        raise UsageError(f"--delete-when {delete_when!r} names no hour", hint="write hours from 0 to 23: 04 or '04;16'")
    if at is not None and not (dry_run or forecast):
        raise UsageError("--now is for --dry-run only", hint="choose what is removed by --older-than")


def _asked(report: CleanReport, loss: _Loss) -> str:
    """The question, which a person is asked."""
    unread = f", {loss.unread.lost} of them unread by some group" if loss.unread.lost else ""
    return f"removes {_what(report, loss.messages)} for good{unread}"


def _what(report: CleanReport, messages: int | None) -> str:
    """What is removed, in a few words: messages are those that the consume queues lead to, None if not known."""
    files = counted(len(report.removed), "file")
    return files if messages is None else f"{counted(messages, 'message')} in {files}"


def _summarise(report: CleanReport, output: Output, loss: _Loss) -> None:
    """Say on stderr what is removed and what is kept."""
    for note in report.notes:
        output.talk(f"note: {note}")
    gone = Counter(decision.kind for decision in report.removed)
    if gone:
        listed = ", ".join(counted(count, _FILES[kind]) for kind, count in gone.items())
        would = "would be" if report.dry_run else "was" if sum(gone.values()) == 1 else "were"
        sizes = human_size(report.bytes_freed)
        output.talk(f"{counted(sum(gone.values()), 'file')} {would} removed ({listed}), {sizes}")
        if loss.messages is not None:
            output.talk(f"with them {counted(loss.messages, 'message')} that consume queues lead to")
        loss.unread.tell(output)
        begins = "would begin" if report.dry_run else "begins"
        output.talk(f"the commitlog {begins} at {report.min_offset} instead of {report.min_offset_before}")
    else:
        output.talk("no file would be removed" if report.dry_run else "no file was removed")
    if report.order.disk_full:
        output.talk("the disk is so full that a broker would refuse messages")
    kept = Counter((decision.kind, decision.because) for decision in report.kept)
    would = "would be " if report.dry_run else ""
    for (kind, because), count in kept.items():
        is_kept = f"{would}kept" if would else f"{'is' if count == 1 else 'are'} kept"
        output.talk(f"{counted(count, _FILES[kind])} {is_kept}: {_KEPT[because]}")


def _in_use(opened: MessageStore, plan: CleanReport) -> list[FileInUse]:
    """Return which of the files that go other processes hold."""
    going = {os.path.realpath(decision.path) for decision in plan.removed}
    return [one for one in files_in_use(opened.files.layout) if one.file in going] if going else []


def _show(root: Path, report: CleanReport, output: Output, loss: _Loss, in_use: Sequence[FileInUse] = ()) -> None:
    if output.is_json:
        record = {**_record(root, report), "unread": loss.unread.records(), "unknown": loss.unread.unknown}
        output.record(record | {"in_use": [one._asdict() for one in in_use]})
        return
    _summarise(report, output, loss)
    for line in told_users(in_use, "to be removed"):
        output.talk(f"{line}: it has to end first, or their space is not free")
    listed = [decision for decision in report.decisions if decision.goes or decision.kind in _ALWAYS_LISTED]
    output.rows(COLUMNS, [_row(root, decision, report.dry_run) for decision in listed], droppable=_DROPPABLE)


def _row(root: Path, decision: FileDecision, dry_run: bool) -> dict[str, Any]:
    inside = decision.path.is_relative_to(root)
    return {
        "kind": decision.kind,
        "file": str(decision.path.relative_to(root) if inside else decision.path),
        "size": decision.size,
        "modified_timestamp": decision.modified_timestamp,
        "action": ("remove" if dry_run else "removed") if decision.goes else "keep",
        "reason": decision.because.value,
        "detail": decision.detail,
    }


def _json_decision(decision: FileDecision) -> dict[str, Any]:
    return {
        "kind": decision.kind,
        "file": str(decision.path),
        "start_offset": decision.start_offset,
        "size": decision.size,
        "modified_timestamp": decision.modified_timestamp,
        "modified_time": format_time(decision.modified_timestamp),
        "reason": decision.because.value,
        "detail": decision.detail,
    }


def _record(root: Path, report: CleanReport) -> dict[str, Any]:
    return {
        "path": str(root),
        "dry_run": report.dry_run,
        "triggers": list(report.order.triggers),
        "at_once": report.order.at_once,
        "disk_full": report.order.disk_full,
        "commitlog_used_percent": list(report.usage.commitlog),
        "consumequeue_used_percent": report.usage.consumequeue,
        "min_offset_before": report.min_offset_before,
        "min_offset": report.min_offset,
        "files_removed": len(report.removed),
        "bytes_freed": report.bytes_freed,
        "removed": [_json_decision(decision) for decision in report.removed],
        "kept": [_json_decision(decision) for decision in report.kept],
        "notes": report.notes,
    }
