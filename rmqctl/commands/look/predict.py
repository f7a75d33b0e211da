"""`rmqctl predict`: what the next start of a broker will do to a store, without doing it."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.flags.options import StoreLocation, output_options, store_options
from rmqctl.formats.errors import counted, lasting
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import said
from rmqctl.store.config.releases import VERSIONS
from rmqctl.store.options import Events

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.message_store import MessageStore
    from rmqctl.store.predict import Prediction

_ALL = "all"
_QUEUE_COLUMNS = ("topic", "queue_id", "max_before", "min_after", "max_after", "dropped", "added", "misplaced")
_UNQUEUED_COLUMNS = ("topic", "queue_id", "messages", "first_offset", "last_offset", "physical_offset")
_COMPARED = (
    "broker",
    "loads",
    "start_file",
    "end_offset",
    "messages_lost",
    "messages_unqueued",
    "dropped",
    "added",
    "misplaced",
    "index_entries_lost",
    "messages_stuck",
    "deleted",
    "why",
)
_TOPIC_COLUMNS = ("topic", "queues", "messages", "units_added")
_REPLICA_COLUMNS = (
    "store", "identity", "epoch", "begin_offset", "end_offset", "confirm_offset", "is_best", "common_end",
    "messages_removed", "bytes_removed", "note",
)  # fmt: skip
_SHOWN = 20


@click.command(
    epilog="""\b
Examples:
  rmqctl predict -s /data/store                    before a start after a crash
  rmqctl predict -s /data/store --broker 4.9.8
  rmqctl predict -s /data/store --broker all       the three versions side by side
  rmqctl predict -s /data/store -c broker.conf     with the sizes and paths that it will start with
  rmqctl predict -s /data/store --json
  rmqctl predict -s /data/store --to 5.5.0         before an upgrade: formats and settings
  rmqctl predict -s /data/store -c broker.conf --from 5.3.3 --to 4.9.8
  rmqctl predict -s /a/store --epochs /b/store --epochs /c/store   replicas under a controller, or of DLedger

Exit code 0: it starts and loses nothing. 1: it refuses to start, or messages, queue units, index entries or tables of
its configuration are lost, delayed messages are never delivered, or the progress of the timer is lost.
5: this configuration is not supported."""
)
@store_options
@click.option(
    "--broker", type=click.Choice((*VERSIONS, _ALL)), help="Version that starts. [default: the newest by the files]"
)
@click.option("--to", "target", type=click.Choice(VERSIONS), help="List what this version treats differently.")
@click.option("--from", "source", type=click.Choice(VERSIONS), help="Version that runs now. [default: by the files]")
@click.option(
    "--epochs",
    "others",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="STORE",
    help="Compare with this replica: which is best, what the others lose. Repeatable.",
)
@output_options
def predict(
    store: StoreLocation,
    output: Output,
    *,
    broker: str | None,
    target: str | None,
    source: str | None,
    others: tuple[Path, ...],
) -> int:
    """Predict what the next start of a broker does to this store.

    Nothing is changed. The prediction follows that version, its defects included: whether it starts, where its
    recovery begins and ends the log, which files, messages and queue units it removes, and which it puts into wrong
    places. Config files and their backups, the timer's files, the lock and the permissions of the store's owner
    are part of it. What its cleaning by age and disk space removes later is not part of it: see `clean --dry-run`.

    It also says how much its recovery reads, and estimates how long that takes. With --broker all, `why` says what
    stops a version, or why its start is not predicted.

    With --to, it lists instead what that version does not read or treats differently: queues and tables in
    RocksDB, batch queues, messages of version 2, timers, POP, topic attributes, index entries of tags, the checkpoint.
    With -c, it also lists settings that the version ignores, keys that no version has, and defaults that differ.
    `effect` is refused, lost, changed or unused. Exit code 1: something is refused or lost.

    With --epochs, it compares replicas of one group instead. The best has the newest epoch (or DLedger term) and, of
    these, the longest log. Each other one is cut at the end of the newest epoch that both have with the same start.
    Exit code 1: a replica loses messages by that.

    Of broker.conf the sizes and paths, brokerRole, messageDelayLevel, messageIndexEnable, messageIndexSafe and
    checkCRCOnRecover count, and for 5.5.0 commitLogRecoverMaxNum, enableAcceleratedRecovery and
    checkCommitLogOffsetOnRecover. With duplicationEnable, 5.x ends the log at the first message without DUP_INFO.
    storeType says where queues are, else the store does. Not predicted: enableControllerMode, forceVerifyPropCRC,
    indexRocksDBEnable, transRocksDBEnable, duplicationEnable of 4.9.8 and of messages with
    DUP_INFO.
    """
    from rmqctl.opening import log_bytes, open_store
    from rmqctl.output.terminal import progress

    if others:
        return _replicas(store, others, output)
    if target is not None:
        return _other_version(store, output, target, source)
    if source is not None:
        raise click.UsageError("--from goes with --to")
    from rmqctl.reports.changes import tell_unknown_settings
    from rmqctl.reports.check_report import kind_of_start, of_prediction, print_verdict

    with open_store(store) as opened:
        total = log_bytes(opened.files)
        if broker == _ALL:
            return _compare(opened, output)
        with progress("reading the commitlog", total, "bytes") as bar:
            found = opened.predict(broker, events=Events(bar.advance))
        kind = kind_of_start(opened.files, found)
    opening = of_prediction(found, opened.files.root, store.config_path, **kind)
    print_verdict(output, opening)
    if output.format == "table":
        output.text("")
    _print(found, output)
    _advise(found, output, opening.command, is_member=kind["is_member"])
    tell_unknown_settings(output, store.config_path)
    return exit_codes.DAMAGE_OR_NOTHING if found.is_harmful else exit_codes.OK


def _other_version(store: StoreLocation, output: Output, target: str, source: str | None) -> int:
    """List what another version does otherwise."""
    from rmqctl.opening import open_store
    from rmqctl.reports.changes import print_version_change, setting_changes
    from rmqctl.store.config.config import read_properties

    with open_store(store) as opened:
        found = opened.differences(target)
        before = source or opened.probable_version()
    properties = {} if store.config_path is None else read_properties(store.config_path)
    print_version_change(output, before, target, found, setting_changes(properties, before, target))
    return exit_codes.DAMAGE_OR_NOTHING if any(one.is_harmful for one in found) else exit_codes.OK


def _replicas(store: StoreLocation, others: tuple[Path, ...], output: Output) -> int:
    """Print which replica is best, and what the others lose when they follow it."""
    from rmqctl.opening import open_store
    from rmqctl.store.compare.replicas import removals, replica_of

    with contextlib.ExitStack() as opened:
        places = [store, *(store._replace(path=path) for path in others)]
        stores = [opened.enter_context(open_store(place)) for place in places]
        found = removals([replica_of(one.files) for one in stores])
        rows = [one.row() for one in found]
    output.rows(_REPLICA_COLUMNS, rows, droppable=("begin_offset", "identity"))
    for one in found:
        if one.bytes:
            output.talk(f"save them first: rmqctl cat -s {one.replica.files.root} -o {one.point} --json")
    return exit_codes.DAMAGE_OR_NOTHING if any(one.bytes for one in found) else exit_codes.OK


def _compare(opened: MessageStore, output: Output) -> int:
    """Print what a start of each version does, and what they do not have in common."""
    from rmqctl.diagnosis import predicted_versions
    from rmqctl.output.output import talk_paragraph

    rows = predicted_versions(opened)
    output.rows(_COMPARED, rows, droppable=("start_file", "added", "deleted"))
    if output.format == "table":
        every = set.intersection(*(set(row["warnings"]) for row in rows))
        for row in rows:
            for warning in row["warnings"]:
                if warning not in every:
                    talk_paragraph(output, f"{row['broker']}: {warning}", "  ")
    if all(row["is_harmful"] is None for row in rows):
        return exit_codes.REFUSED
    return exit_codes.DAMAGE_OR_NOTHING if any(row["is_harmful"] for row in rows) else exit_codes.OK


def _print(found: Prediction, output: Output) -> None:
    from rmqctl.output.output import talk_paragraph

    record: dict[str, Any] = asdict(found)
    if output.format != "table":
        output.record(record)
        return
    warnings, queues, unqueued = (record.pop(name) for name in ("warnings", "queues_changed", "unqueued"))
    returned = record.pop("topics_returned")
    del record["messages_passed_over"]  # a note says it
    record["config"] = ", ".join(f"{row['file']} ({row['source'] or 'refused'})" for row in record["config"]) or None
    deleted = {name: record.pop(name) for name in ("files_deleted", "index_files_deleted")}
    record |= {name: len(paths) for name, paths in deleted.items()}
    record["queues_changed"] = len(queues)
    record["topics_returned"] = ", ".join(row["topic"] for row in returned) or None
    recovery = record.pop("recovery")
    record["end_reason"] = _in_its_words(found.end_reason)
    output.record(record)
    if recovery is not None:
        _print_recovery(recovery, output)
    for name, paths in deleted.items():
        _listed(output, f"{name.replace('_', ' ')}:", paths)
    if queues:
        output.text("")
        shortened = [
            row | {name: row[f"units_{name}"] for name in ("dropped", "added", "misplaced")} for row in queues[:_SHOWN]
        ]
        output.rows(_QUEUE_COLUMNS, shortened, droppable=("min_after", "max_before"))
        if len(queues) > _SHOWN:
            output.text(said(f"and {counted(len(queues) - _SHOWN, 'more queue')}: --json names all"))
    if unqueued:
        output.text("")
        output.heading("Messages that stay in the log and in no queue, by the queue that they belong to:")
        output.rows(_UNQUEUED_COLUMNS, unqueued[:_SHOWN], droppable=("physical_offset",))
        if len(unqueued) > _SHOWN:
            output.text(said(f"and {counted(len(unqueued) - _SHOWN, 'more queue')}: --json names all"))
    if returned:
        output.text("")
        output.heading("Topics that topics.json does not name, and whose queues hold messages after the start:")
        output.rows(_TOPIC_COLUMNS, returned)
        output.talk("a client that creates such a topic again gets these messages; `rmqctl purge --help` removes them")
    for warning in warnings:
        talk_paragraph(output, f"note: {warning}", "  ")


def _print_recovery(recovery: dict[str, Any], output: Output) -> None:
    from rmqctl.output.output import print_paragraph
    from rmqctl.output.table import human_size

    least, most = (max(1, round(recovery[name])) for name in ("seconds_least", "seconds_most"))
    span = "" if least == most else f"{lasting(least * 1000)} to "
    takes = "at most 1 second" if most == 1 else f"about {span}{lasting(most * 1000)}"
    output.text("")
    print_paragraph(
        output,
        f"recovery reads {human_size(recovery['log_bytes'])} in {counted(recovery['log_files'], 'commitlog file')} and "
        f"opens {counted(recovery['queue_files'], 'queue file')}; {takes}",
    )
    print_paragraph(output, f"({recovery['basis']})", "  ")


def _in_its_words(reason: str | None) -> str | None:
    """Why the log ends for the broker, as it logs that; a magic code of zero is how every log ends."""
    if reason is None:
        return None
    ends_well = reason.endswith(" magic code 0x0")
    return f'{"nothing is written there" if ends_well else "the broker stops there"}; it logs "{reason}"'


def _advise(found: Prediction, output: Output, command: str | None, *, is_member: bool) -> None:
    """Say what to do before this start. `command`: the next step; `is_member`: of a DLedger group."""
    from rmqctl.reports.check_report import is_for_permissions

    lost_of_log = found.messages_lost or found.messages_unqueued or found.index_entries_lost or found.queues_changed
    if found.loads and found.harmful_setting is not None:
        output.talk(
            f"with {found.harmful_setting}, recovery takes no message without DUP_INFO, and cuts log and queues"
        )
    elif found.messages_passed_over and not lost_of_log and not found.config_lost:
        output.talk("`rmqctl rebuild --timer` makes what the timer holds and is due be delivered at once")
    elif found.is_harmful and found.loads and not lost_of_log:
        output.talk("`rmqctl check` names the config files and levels, and what to do about them")
    elif found.messages_lost and is_member:
        output.talk("start another member of the group first: `rmqctl predict --epochs STORE` compares them")
    elif found.is_harmful and found.loads:
        if command is not None and command.startswith("rmqctl recover"):
            output.talk("`rmqctl recover` first keeps what this start would lose; `--dry-run` shows how")
    elif is_for_permissions(found):
        output.talk("`chown` or `chmod` the named files and directories, then predict again")
    elif found.is_harmful:
        output.talk("`rmqctl check` names what is in the way, and the command that fixes it")


def _listed(output: Output, title: str, paths: list[str]) -> None:
    if paths:
        output.text("")
        output.text(said(title))
        for path in paths[:_SHOWN]:
            output.text(f"  {path}")
        if len(paths) > _SHOWN:
            output.text(said(f"  and {len(paths) - _SHOWN} more: --json names all"))
