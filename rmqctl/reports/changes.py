"""How the verbs that recover a store say what they did."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.formats.errors import UnreadableError, counted
from rmqctl.network.config_defaults import conf_defaults
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import human_size, said
from rmqctl.output.times import format_time
from rmqctl.reports.check_report import member_advice
from rmqctl.store.config.config import read_properties
from rmqctl.store.config.releases import RELEASES

if TYPE_CHECKING:
    from rmqctl.opening import StoreLocation
    from rmqctl.output.output import Output
    from rmqctl.store.clean.cleaner import Unread
    from rmqctl.store.clean.forecast import FileForecast, Forecast
    from rmqctl.store.info.info import FileInUse
    from rmqctl.store.predict.compatibility import VersionDifference
    from rmqctl.store.recover.report import RecoverReport

SHOWN_OPERATIONS = ("operation", "path", "offset", "bytes")
SHOWN_BRIDGES = ("physical_offset", "end_offset", "reason", "fillers", "padding_bytes", "slots_given_up")


def undo_advice(store: StoreLocation) -> str:
    """The command that takes a change back, as it has to be written; where the commitlog is the journal remembers."""
    return f"`rmqctl undo -s {shlex.quote(str(store.path))}`"


def print_report(
    report: RecoverReport,
    output: Output,
    store: StoreLocation,
    *,
    no_journal: bool = False,
    is_member: bool = False,
) -> int:
    """Print what a recovery did, or with `dry_run` would do; returns the exit code. `is_member`: of a DLedger group."""
    record: dict[str, Any] = {name: getattr(report, name) for name in report.__slots__}
    if output.is_json:
        output.record(record)
    else:
        _for_people(report, record, output, store, no_journal, is_member)
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
        output.talk("If its queue files were lost instead, `rmqctl rebuild --queues -t TOPIC` makes them from the log.")


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
    report: RecoverReport,
    record: dict[str, Any],
    output: Output,
    store: StoreLocation,
    no_journal: bool,
    is_member: bool,
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
        if is_member:
            output.talk("  " + member_advice())
        else:
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
        output.talk(f"removed and overwritten data is kept in {report.journal}; {undo_advice(store)} restores it")
    elif report.dry_run:
        pass
    elif not operations:
        output.talk("nothing to change")
    elif no_journal:
        output.talk("removed data is not kept: this cannot be undone")


# How a cleaning is told beforehand: what groups lose unread, when each file goes, and who uses files.

_TOLD = 20
_COLUMNS = ("kind", "file", "size", "modified_timestamp", "expires_timestamp", "goes_timestamp", "because", "detail")
_DROPPABLE = ("detail", "kind", "modified_timestamp", "expires_timestamp", "size")
_LEVELS = ("percent", "effect", "reached_timestamp", "bytes_left", "setting")
_LEVELS_DROPPABLE = ("setting", "bytes_left")


class ToldUnread:
    """What groups lose unread, with what is not known of it: `rows` and `unknown` sentences."""

    def __init__(self) -> None:
        self.rows: list[Unread] = []
        self.unknown: list[str] = []

    @property
    def lost(self) -> int:
        """Messages that are known to be unread, each counted for every group that has not read it."""
        return sum(row.messages for row in self.rows if row.state == "lost")

    def tell(self, output: Output) -> None:
        """Say on stderr who loses what."""
        for row in self.rows[:_TOLD]:
            output.talk(_sentence(row))
        if len(self.rows) > _TOLD:
            output.talk(f"and {len(self.rows) - _TOLD} more groups and topics (--json has all)")
        for sentence in self.unknown:
            output.talk(f"unknown: {sentence}")

    def records(self) -> list[dict[str, Any]]:
        """For JSON."""
        return [row._asdict() for row in self.rows]


def _sentence(row: Unread) -> str:
    ids = list(row.queues)
    queues = f"queue {ids[0]}" if len(ids) == 1 else f"{len(ids)} queues"
    times = [format_time(time) if time is not None else "?" for time in (row.first_timestamp, row.last_timestamp)]
    what = f"{counted(row.messages, 'message')} of {row.topic} ({queues}, stored {times[0]} to {times[1]})"
    if row.group is None:
        return f"not delivered yet, and goes: {what}"
    if row.state == "lost":
        return f"group {row.group} has not read and loses {what}"
    return f"unknown: whether group {row.group} has read {what}: no offset of it is kept there"


def print_forecast(found: Forecast, output: Output, root: Path) -> None:
    """The ratios of the disk and every file; as JSON one object."""
    levels = [level._asdict() for level in found.levels]
    if output.is_json:
        output.record(
            {
                "path": str(root),
                "commitlog_used_percent": list(found.usage.commitlog),
                "consumequeue_used_percent": found.usage.consumequeue,
                "bytes_per_day": found.bytes_per_day,
                "levels": levels,
                "files": [_row(root, file) for file in found.files],
                "notes": found.notes,
            }
        )
        return
    for note in found.notes:
        output.talk(f"note: {note}")
    percents = ", ".join("unknown" if one is None else f"{one} %" for one in found.usage.commitlog)
    if output.format == "table":
        output.text(said(f"The commitlog's disk is used to {percents}:"))
        output.rows(_LEVELS, levels, droppable=_LEVELS_DROPPABLE)
        output.text("")
        output.text(said("As things stand, a broker that runs removes:"))
    listed = [file for file in found.files if output.format == "csv" or _is_listed(file)]
    output.rows(_COLUMNS, [_row(root, file) for file in listed], droppable=_DROPPABLE)
    if len(found.files) > len(listed):
        output.talk(f"{len(found.files) - len(listed)} files of consume queues stay (--json lists them)")
    if found.bytes_per_day is not None:
        output.talk(f"the log has grown by {human_size(found.bytes_per_day)} a day: so it is taken to go on")


def _is_listed(file: FileForecast) -> bool:
    """Queue files that stay are as many as there are queues."""
    return file.goes_timestamp is not None or file.kind in ("commitlog", "index")


def _row(root: Path, file: FileForecast) -> dict[str, Any]:
    place = file.path.relative_to(root) if file.path.is_relative_to(root) else file.path
    record = file._asdict()
    del record["path"]
    return {**record, "file": str(place)}


def told_users(files: Iterable[FileInUse], what: str) -> Iterator[str]:
    """Yield a sentence for each process that uses files."""
    for (process, command), group in groupby(files, lambda one: (one.process, one.command)):
        used = list(group)
        mapped = sum(one.mapped for one in used)
        size = human_size(sum(one.bytes for one in used))
        named = f"process {process} ({command})" if command else f"process {process}"
        yield f"{named} uses {counted(len(used), 'file')} {what}, {mapped} of them mapped, {size} on the disk"


# Names what killed processes left beside what a command makes or looks at.

_SHOWN = 5


def tell_left_behind(output: Output, *directories: Path) -> None:
    """Say on stderr which unfinished files and folders lie in `directories` whose processes are gone. Nothing is
    removed: the user may want to know first."""
    from rmqctl.store.files.outputs import left_behind

    found = [path for directory in dict.fromkeys(directories) for path in left_behind(directory)]
    for path in found[:_SHOWN]:
        output.talk(f"left by a process that is gone: {path} ({human_size(_size(path))}); it may be removed")
    if len(found) > _SHOWN:
        output.talk(f"and {len(found) - _SHOWN} more like it")


def _size(path: Path) -> int:
    from rmqctl.store.files.io import tree_on_disk_bytes

    try:
        return tree_on_disk_bytes(path)
    except (FileNotFoundError, UnreadableError):  # it is just being removed, or another user's
        return 0


# Print what another version of RocketMQ does otherwise with a store and its broker.conf.

_VERSION_CHANGE_COLUMNS = ("effect", "part", "detail")
_SETTINGS = ("setting", "value", "before", "after", "detail")


class SettingChange(NamedTuple):
    """A setting that counts otherwise. `value`: in broker.conf; `before` and `after`: the defaults of both versions,
    None where a version does not know the setting."""

    setting: str
    value: str | None
    before: str | None
    after: str | None
    detail: str


def tell_unknown_settings(output: Output, config_path: Path | None) -> None:
    """Say which keys of a broker.conf no broker reads."""
    if config_path is None:
        return
    from rmqctl.network.broker.config_keys import unknown_settings

    for name, like in unknown_settings(read_properties(config_path)).items():
        meant = f"; did you mean {like}?" if like else ""
        output.talk(f"{config_path.name}: brokers pass over {name}: no version has this key{meant}")


def setting_changes(properties: Mapping[str, str], before: str, after: str) -> list[SettingChange]:
    """Return the settings of `properties` that `after` does not know, and other defaults of settings left out."""
    from rmqctl.network.broker.config_keys import unknown_settings

    old, new = conf_defaults(RELEASES[before]), conf_defaults(RELEASES[after])
    known = {name for release in RELEASES.values() for name in conf_defaults(release)}
    rows = [
        SettingChange(name, value, old.get(name), None, f"{after} ignores it")
        for name, value in sorted(properties.items())
        if name in known and name not in new
    ]
    rows += [
        SettingChange(name, properties[name], None, None, f"no version has it{f'; like {like}' if like else ''}")
        for name, like in unknown_settings(properties).items()
    ]
    rows += [
        SettingChange(name, None, old[name], new[name], "another default")
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name] and name not in properties
    ]
    return rows


def print_version_change(
    output: Output, before: str, after: str, found: list[VersionDifference], settings: list[SettingChange]
) -> None:
    """Print both lists under a sentence that says whether anything is missed."""
    harmful = sum(one.is_harmful for one in found)
    rows = [one._asdict() for one in found]
    if output.is_json:
        record: dict[str, Any] = {"version": after, "from": before, "harmful": harmful, "differences": rows}
        output.record(record | {"settings": [one._asdict() for one in settings]})
        return
    if output.format != "table":
        output.rows(_VERSION_CHANGE_COLUMNS, rows)
        return
    if harmful:
        output.text(said(f"RocketMQ {after} misses or refuses {counted(harmful, 'thing')} that this store holds."))
    else:
        output.text(said(f"RocketMQ {after} reads all that this store holds, as far as its files show."))
    if rows:
        output.text("")
        output.rows(_VERSION_CHANGE_COLUMNS, rows)
    if settings:
        output.heading(f"Settings from {before} to {after}:")
        output.rows(_SETTINGS, [one._asdict() for one in settings], droppable=("detail",))
