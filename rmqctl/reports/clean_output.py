"""How a cleaning is told beforehand: what groups lose unread, when each file goes, and who uses files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.formats.wording import counted
from rmqctl.output.cells import human_size
from rmqctl.output.times import format_time

if TYPE_CHECKING:
    from rmqctl.output.output import Output
    from rmqctl.store.clean import Forecast, Unread
    from rmqctl.store.clean.forecast import FileForecast
    from rmqctl.store.info.held_files import FileInUse

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
        output.text(f"The commitlog's disk is used to {percents}:")
        output.rows(_LEVELS, levels, droppable=_LEVELS_DROPPABLE)
        output.text("")
        output.text("As things stand, a broker that runs removes:")
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
        size = counted(sum(one.bytes for one in used), "byte")
        named = f"process {process} ({command})" if command else f"process {process}"
        yield f"{named} uses {len(used)} {what}, {mapped} of them mapped, {size} on the disk"
