"""What a put answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from rmqctl.formats.errors import DiskFullError, WriteFailedError
from rmqctl.formats.hosts import Host, format_offset_message_id
from rmqctl.formats.message import Message
from rmqctl.store.status import PutStatus

STORED = PutStatus.PUT_OK
_HINTS = {
    PutStatus.DISK_FULL: "free some space, then go on",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "free some space, then go on",
    PutStatus.OS_PAGE_CACHE_BUSY: "the disk is too slow now: try again later",
}


class PutResult(NamedTuple):
    """How a put ended. The ids and offsets are None unless the message is stored; `detail` says why it is not.

    A message that takes no place in a queue (prepared, rolled back) has queue offset 0, as in its frame.
    """

    status: PutStatus
    queue_offset: int | None = None
    physical_offset: int | None = None
    detail: str = ""
    store_host: Host | None = None

    @property
    def message_id(self) -> str | None:
        """The broker's offset id: made when it is asked for, because most callers of many puts do not."""
        if self.store_host is None or self.physical_offset is None:
            return None
        return format_offset_message_id(self.store_host, self.physical_offset)

    @property
    def is_failure(self) -> bool:
        """Whether the store could not take a message of which nothing bad is known: see `raise_failure`."""
        return not self.status.is_stored and not self.status.is_about_message

    def raise_failure(self, place: str = "") -> None:
        """WriteFailedError, DiskFullError for a full disk, if the store could not take the message. Nothing where it is
        stored or is unfit itself. `place`: what the error begins with, such as which message it is."""
        if not self.is_failure:
            return
        error = DiskFullError if self.status is PutStatus.DISK_FULL else WriteFailedError
        raise error(f"{place}{self.status}: {self.detail}", hint=_HINTS.get(self.status))


class PendingPut(NamedTuple):
    """A put that did not wait for the disk. Whoever wants to be sure of it waits until everything before the physical
    offset `durable_at` is there; 0: there is nothing to wait for, or nothing that the message asks for."""

    results: Sequence[PutResult]
    durable_at: int = 0


new_result = cast(Callable[[type[PutResult], tuple[object, ...]], PutResult], tuple.__new__)
"""new_result(PutResult, fields): what PutResult(*fields) makes, in a third of the time."""


def put_until_failure(messages: Sequence[Message], put: Callable[[Message], PutResult]) -> list[PutResult]:
    """Put messages one after the other. Where the store cannot take one the rest share its answer untried: a smaller
    message that still fits would leave a gap in the middle, and whoever goes on with the rest would store it twice."""
    results: list[PutResult] = []
    for message in messages:
        result = put(message)
        results.append(result)
        if result.status is not STORED and result.is_failure:
            results += [result] * (len(messages) - len(results))
            break
    return results
