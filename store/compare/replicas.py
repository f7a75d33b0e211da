"""Replicas of one log under a controller or in a DLedger group: which has most, and what the others lose to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqctl.store.compare.dledger import entry_heads, is_whole
from rmqctl.store.config.epoch_file import Epoch, broker_epochs, broker_identity
from rmqctl.store.log.column_walk import walk_columns
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import Blank
from rmqctl.store.native.tables import Columns
from rmqctl.store.store_files import StoreFiles

_COMPARED = 256


class Replica(NamedTuple):
    """One store of a group. Offsets are physical. `epochs`: terms of a DLedger log count as epochs. `confirm`: up to
    where in-sync replicas are known to have the log, None where nothing says so."""

    files: StoreFiles
    identity: str | None
    epochs: list[Epoch]
    begin: int
    end: int
    confirm: int | None

    def end_of(self, number: int) -> int:
        """Return where the epoch at a place of `epochs` ends."""
        return self.epochs[number + 1].start if number + 1 < len(self.epochs) else self.end


class Removal(NamedTuple):
    """What a replica loses when it follows `best`. `point`: up to here both have the same, None where they have no
    epoch in common; `why` says what happens instead of a truncation."""

    replica: Replica
    is_best: bool
    point: int | None
    messages: int
    bytes: int
    why: str

    def row(self) -> dict[str, Any]:
        """Return it under the names that `predict --epochs` and `diff` print."""
        one = self.replica
        return {
            "store": str(one.files.root),
            "identity": one.identity,
            "epoch": one.epochs[-1].number if one.epochs else None,
            "begin_offset": one.begin,
            "end_offset": one.end,
            "confirm_offset": one.confirm,
            "is_best": self.is_best,
            "common_end": self.point,
            "messages_removed": self.messages,
            "bytes_removed": self.bytes,
            "note": self.why or None,
        }


def replica_of(files: StoreFiles) -> Replica:
    """Return what a store says of itself as a replica. The heads of a DLedger log are read whole. UnreadableError."""
    log = files.log
    begin, end = max(log.min_offset, 0), _end_of(files)
    if files.dledger is not None:
        epochs = list(_terms(files, end))
        return Replica(files, files.dledger.folder.parent.name.removeprefix("dledger-"), epochs, begin, end, None)
    checkpoint = files.readable_checkpoint()
    confirm = None if checkpoint is None else checkpoint.confirm_physical_offset
    return Replica(files, broker_identity(files.layout), broker_epochs(files.layout), begin, end, confirm)


def _end_of(files: StoreFiles) -> int:
    """Return where the log ends before the first damage or zeros of its last file, as a broker finds it."""
    log = files.log
    file = log.last_with_data()
    if file is None:
        return max(log.min_offset, 0)
    end = file.start_offset
    for record in walk_columns(log, file.start_offset, columns=Columns.NONE):
        if not isinstance(record, MessageColumns | Blank):
            break
        end = record.end
    return end


def _terms(files: StoreFiles, end: int) -> Iterator[Epoch]:
    """Yield each term of a DLedger log with the offset of its first entry."""
    assert files.dledger is not None
    known = -1
    for heads, _ in entry_heads(files.log, files.dledger.begin, end):
        whole = heads[is_whole(heads)]
        terms = whole["term"].astype(np.int64)
        for row in np.flatnonzero(np.diff(terms, prepend=known)).tolist():
            known = int(terms[row])
            yield Epoch(known, int(whole[row]["pos"]))


def common_end(one: Replica, other: Replica) -> int | None:
    """Return up to where both have the same log by their newest common epoch, None where no epoch is in both with the
    same start. (EpochFileCache#findConsistentPoint)"""
    places = {epoch: number for number, epoch in enumerate(other.epochs)}
    for number in reversed(range(len(one.epochs))):
        place = places.get(one.epochs[number])
        if place is not None:
            return min(one.end_of(number), other.end_of(place))
    return None


def _is_one_log(one: Replica, other: Replica) -> bool:
    """Return whether the first bytes that both have are the same; True where they have none in common."""
    begin, end = max(one.begin, other.begin), min(one.end, other.end)
    length = min(_COMPARED, end - begin)
    return length <= 0 or one.files.log.read(begin, length) == other.files.log.read(begin, length)


def removals(replicas: Sequence[Replica]) -> list[Removal]:
    """Return what each replica loses if the best one becomes master: that of the newest epoch, and of these the
    longest. UnreadableError."""
    best = max(replicas, key=lambda one: (one.epochs[-1].number if one.epochs else -1, one.end))
    return [_removal(one, best) for one in replicas]


def _removal(one: Replica, best: Replica) -> Removal:
    if one is best:
        return Removal(one, True, one.end, 0, 0, "")
    if not _is_one_log(one, best):
        return Removal(one, False, None, 0, 0, "another log: `rmqctl diff` shows where they differ")
    if not one.epochs:
        return Removal(one, False, None, 0, 0, "has no epochs: copies the whole log")
    point = common_end(one, best)
    if point is None:
        return Removal(one, False, None, 0, 0, "no epoch in common: stays out until its store is emptied")
    messages = sum(
        record.rows
        for record in walk_columns(one.files.log, point, one.end, columns=Columns.NONE)
        if isinstance(record, MessageColumns)
    )
    why = f"lacks {best.end - point} bytes, which it copies" if best.end > point else ""
    return Removal(one, False, point, messages, one.end - point, why)
