"""Name the valid messages around a place of the commitlog that holds none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.formats.errors import RmqctlError
from rmqctl.formats.wording import format_time

if TYPE_CHECKING:
    from rmqctl.formats.message import StoredMessage
    from rmqctl.store.store_files import StoreFiles


def add_nearest(error: RmqctlError, files: StoreFiles) -> RmqctlError:
    """Add to an error at a physical offset which valid messages are nearest; as it is where that cannot be read."""
    if error.physical_offset is None or error.physical_offset < 0:
        return error
    from rmqctl.store.commitlog.neighbours import REACH, neighbours

    try:
        found = neighbours(files.log, error.physical_offset)
    except RmqctlError as unread:
        error.notes = (f"the nearest messages are not known: {unread}",)
        return error
    error.details = {
        "nearest_before": _place(found.before),
        "nearest_after": _place(found.after),
        "searched_from": found.searched_from,
        "searched_to": found.searched_to,
    }
    limit = f"at most {REACH >> 20} MiB on each side"
    error.notes = (
        _line("before", found.before, f"none from offset {found.searched_from} on ({limit})"),
        _line("after", found.after, f"none up to offset {found.searched_to} ({limit})"),
    )
    return error


def _place(message: StoredMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "physical_offset": message.physical_offset,
        "size": message.total_size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_timestamp": message.store_timestamp,
    }


def _line(side: str, message: StoredMessage | None, missing: str) -> str:
    if message is None:
        return f"nearest valid message {side}: {missing}"
    place = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
    return (
        f"nearest valid message {side}: {message.physical_offset} "
        f"({place}, stored {format_time(message.store_timestamp)})"
    )
